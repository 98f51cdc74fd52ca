#include "ir/directives/post_validation.h"

namespace piper::ir {

bool PostValidates(BuildContext& context) {
  const Directive* first = context.Single<OptimizerDirective>("`optimizer`");
  return first != nullptr && std::get<OptimizerDirective>(first->body).post_validation;
}

}  // namespace piper::ir
