#include "kernels/registry.h"

#include <deque>
#include <map>
#include <string>
#include <type_traits>
#include <utility>

#include "kernels/kernels.h"
#include "kernels/shapes.h"

namespace piper::kernels {
namespace {

// Argument i of a call: taken from the list of its kind, at the number of earlier arguments of that kind.
template <typename Argument>
struct ArgumentKind {
  static constexpr int value = std::is_pointer_v<Argument>         ? 0
                               : std::is_same_v<Argument, int64_t> ? 1
                               : std::is_same_v<Argument, double>  ? 2
                                                                   : 3;
};

template <typename Argument, int position>
Argument Gather(void* const* operands, const int64_t* ints, const double* scalars, const RandomKey* key) {
  if constexpr (std::is_pointer_v<Argument>) {
    return static_cast<Argument>(operands[position]);
  } else if constexpr (std::is_same_v<Argument, int64_t>) {
    return ints[position];
  } else if constexpr (std::is_same_v<Argument, double>) {
    return scalars[position];
  } else {
    return *key;
  }
}

template <const auto& kernel, typename Signature>
struct Invoker;

template <const auto& kernel, typename... Arguments>
struct Invoker<kernel, void(Arguments...)> {
  static constexpr int PositionOf(size_t index) {
    constexpr int kinds[] = {ArgumentKind<Arguments>::value...};
    int position = 0;
    for (size_t i = 0; i < index; ++i) position += kinds[i] == kinds[index] ? 1 : 0;
    return position;
  }
  template <size_t... index>
  static void Call(void* const* operands, const int64_t* ints, const double* scalars, const RandomKey* key,
                   std::index_sequence<index...>) {
    kernel(Gather<Arguments, PositionOf(index)>(operands, ints, scalars, key)...);
  }
  static void Invoke(void* const* operands, const int64_t* ints, const double* scalars,
                     const RandomKey* key) {
    Call(operands, ints, scalars, key, std::index_sequence_for<Arguments...>());
  }
};

// Names live as long as the process.
const char* Keep(std::string text) {
  static std::deque<std::string> names;
  names.push_back(std::move(text));
  return names.back().c_str();
}

// One parameter of the declaration's text, for instance "const T* x" or "int64_t rows".
void AddParameter(std::string_view text, KernelInfo* info) {
  size_t name_at = text.find_last_of(" *&") + 1;
  std::string name(text.substr(name_at));
  std::string_view type = text.substr(0, name_at);
  auto has = [&](std::string_view word) { return type.find(word) != std::string_view::npos; };
  if (has("RandomKey")) {
    info->random = true;
  } else if (has("*")) {
    OperandInfo operand{Keep(name), OperandRole::kOut, OperandElement::kT};
    if (has("int32_t")) operand.element = OperandElement::kI32;
    if (has("double")) operand.element = OperandElement::kF64;
    if (has("const")) operand.role = OperandRole::kIn;
    if (has("PIPER_INOUT")) operand.role = OperandRole::kInOut;
    if (name == "workspace") operand.role = OperandRole::kWorkspace;
    info->operands.push_back(operand);
  } else if (has("int64_t")) {
    info->int_names.push_back(Keep(name));
  } else {
    info->scalar_names.push_back(Keep(name));
  }
}

void ParseParameters(std::string_view text, KernelInfo* info) {
  while (!text.empty()) {
    size_t comma = text.find(',');
    std::string_view parameter = text.substr(0, comma);
    while (!parameter.empty() && parameter.front() == ' ') parameter.remove_prefix(1);
    AddParameter(parameter, info);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
}

template <KernelShape (*shape)(const int64_t*)>
struct ShapeQueries {
  static void OperandElements(const int64_t* ints, int64_t* elements) {
    KernelShape s = shape(ints);
    for (size_t i = 0; i < s.count; ++i) elements[i] = s.elements[i];
  }
  static double Flops(const int64_t* ints) { return shape(ints).flops; }
};

template <KernelId id, KernelShape (*shape)(const int64_t*)>
int64_t WorkspaceElements(const int64_t* ints) {
  int index = AllKernels()[static_cast<size_t>(id)].workspace_index();
  return index < 0 ? 0 : shape(ints).elements[index];
}

template <KernelId id, KernelShape (*shape)(const int64_t*)>
double Bytes(const int64_t* ints, int64_t element_bytes) {
  const KernelInfo& info = AllKernels()[static_cast<size_t>(id)];
  KernelShape s = shape(ints);
  double total = 0;
  for (size_t i = 0; i < info.operands.size(); ++i) {
    double size = info.operands[i].element == OperandElement::kI32   ? 4
                  : info.operands[i].element == OperandElement::kF64 ? 8
                                                                     : static_cast<double>(element_bytes);
    double passes = info.operands[i].role == OperandRole::kInOut ? 2 : 1;
    total += passes * size * static_cast<double>(s.elements[i]);
  }
  return total;
}

template <KernelId id, const auto& kernel, template <typename> class Signature,
          KernelShape (*shape)(const int64_t*)>
KernelInfo Describe(const char* name, const char* parameters) {
  KernelInfo info{};
  info.name = name;
  info.id = id;
  info.f32 = &Invoker<kernel, Signature<float>>::Invoke;
  info.f64 = &Invoker<kernel, Signature<double>>::Invoke;
  info.operand_elements = &ShapeQueries<shape>::OperandElements;
  info.flops = &ShapeQueries<shape>::Flops;
  info.workspace_elements = &WorkspaceElements<id, shape>;
  info.bytes = &Bytes<id, shape>;
  ParseParameters(parameters, &info);
  return info;
}

}  // namespace

int KernelInfo::workspace_index() const {
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].role == OperandRole::kWorkspace) return static_cast<int>(i);
  }
  return -1;
}

const std::vector<KernelInfo>& AllKernels() {
  static const std::vector<KernelInfo> kernels = {
#define PIPER_OPERATION(name) \
  Describe<KernelId::name, name, name##_signature, name##_shape>(#name, name##_parameters),
#include "kernels/operations.def"
#undef PIPER_OPERATION
  };
  return kernels;
}

const KernelInfo* FindKernel(std::string_view name) {
  static const std::map<std::string_view, const KernelInfo*> index = [] {
    std::map<std::string_view, const KernelInfo*> by_name;
    for (const KernelInfo& info : AllKernels()) by_name[info.name] = &info;
    return by_name;
  }();
  auto found = index.find(name);
  return found == index.end() ? nullptr : found->second;
}

}  // namespace piper::kernels
