// What an order leaves out: every node of `wanted` must have been listed. Mostly a whole step is missing,
// which is then one report, with the place where it belongs.
#pragma once

#include "ir/directives/order.h"

namespace piper::ir {

// `listed`: per node, the origin of the step that lists it plus 1, or 0. `foreign`: of a step of other groups
// that the order lists, or 0.
void ReportMissingSteps(BuildContext& context, const Directive& order, GroupId host,
                        const std::vector<TemplateId>& wanted, const std::vector<uint32_t>& listed,
                        OriginId foreign);

}  // namespace piper::ir
