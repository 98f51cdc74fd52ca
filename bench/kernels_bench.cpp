// Times kernels on the shapes of the reference and demo models: GFLOP/s of products (beside an OpenBLAS, if
// one can be loaded), attention, and the rate of the elementwise and row kernels. Contenders take turns; the
// best time of each counts. Usage: kernels_bench [--blas libopenblas.so.0] [--isa plain|v3|v4]
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernels/isa.h"
#include "kernels/kernels.h"
#include "kernels/registry.h"

namespace {

using namespace piper::kernels;
using Floats = std::vector<float>;
using SgemmFn = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                         const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc);

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Floats Numbers(int64_t n, uint64_t operation) {
  Floats x(static_cast<size_t>(n));
  uniform_fill(x.data(), n, 0, -1.0, 1.0, {.seed = 1, .operation = operation});
  return x;
}

// The best time of each contender over rounds in which they take turns, at least 0.2 s and five rounds in
// all.
std::vector<double> BestTimes(const std::vector<std::function<void()>>& contenders) {
  std::vector<double> best(contenders.size(), 1e30);
  double start = Seconds();
  for (int round = 0; round < 5 || Seconds() - start < 0.2; ++round) {
    for (size_t i = 0; i < contenders.size(); ++i) {
      double before = Seconds();
      contenders[i]();
      best[i] = std::min(best[i], Seconds() - before);
    }
  }
  return best;
}

SgemmFn LoadBlas(const char* path) {
  void* library = dlopen(path, RTLD_NOW);
  if (library == nullptr) return nullptr;
  if (auto threads = reinterpret_cast<void (*)(int)>(dlsym(library, "openblas_set_num_threads"))) threads(1);
  if (auto core = reinterpret_cast<const char* (*)()>(dlsym(library, "openblas_get_corename"))) {
    std::printf("OpenBLAS (%s), one thread\n", core());
  }
  return reinterpret_cast<SgemmFn>(dlsym(library, "cblas_sgemm"));
}

void BenchGemm(SgemmFn blas) {
  struct Shape {
    int m, n, k, trans_a, trans_b;
  };
  const Shape shapes[] = {{2048, 1024, 256, 0, 0}, {2048, 256, 1024, 0, 0}, {2048, 768, 256, 0, 0},
                          {2048, 256, 256, 0, 0},  {2048, 256, 1024, 0, 1}, {2048, 1024, 256, 0, 1},
                          {256, 1024, 2048, 1, 0}, {1024, 256, 2048, 1, 0}, {512, 384, 128, 0, 0},
                          {512, 128, 384, 0, 0},   {512, 512, 128, 0, 0},   {512, 128, 512, 0, 1},
                          {128, 512, 512, 1, 0},   {512, 256, 128, 0, 1},   {256, 128, 512, 1, 0},
                          {64, 512, 256, 0, 0},    {16, 512, 256, 0, 0},    {2048, 2048, 2048, 0, 0}};
  std::printf("%-26s %10s %10s %7s\n", "gemm m x n x k", "GFLOP/s", "OpenBLAS", "ratio");
  for (const Shape& s : shapes) {
    Floats a = Numbers(int64_t{s.m} * s.k, 1), b = Numbers(int64_t{s.k} * s.n, 2);
    Floats c(static_cast<size_t>(s.m) * static_cast<size_t>(s.n)), d(c.size());
    std::vector<std::function<void()>> contenders = {
        [&] { gemm(a.data(), b.data(), c.data(), s.m, s.n, s.k, s.trans_a, s.trans_b); }};
    if (blas != nullptr) {
      contenders.push_back([&] {
        blas(101, s.trans_a ? 112 : 111, s.trans_b ? 112 : 111, s.m, s.n, s.k, 1.0f, a.data(),
             s.trans_a ? s.m : s.k, b.data(), s.trans_b ? s.k : s.n, 0.0f, d.data(), s.n);
      });
    }
    std::vector<double> best = BestTimes(contenders);
    double work = 2e-9 * s.m * s.n * s.k;
    char name[64];
    std::snprintf(name, sizeof name, "%d x %d x %d%s%s", s.m, s.n, s.k, s.trans_a ? " A'" : "",
                  s.trans_b ? " B'" : "");
    std::printf("%-26s %10.1f", name, work / best[0]);
    if (blas != nullptr) std::printf(" %10.1f %7.2f", work / best[1], best[1] / best[0]);
    std::printf("\n");
  }
}

// Any kernel by name, with operands of random numbers in [-1, 1) and small tokens.
void BenchKernel(const char* name, const std::vector<int64_t>& ints, const std::vector<double>& scalars) {
  const KernelInfo& info = *FindKernel(name);
  std::vector<int64_t> elements(info.operands.size());
  info.operand_elements(ints.data(), elements.data());
  std::vector<Floats> floats(info.operands.size());
  std::vector<std::vector<double>> doubles(info.operands.size());
  std::vector<std::vector<int32_t>> tokens(info.operands.size());
  std::vector<void*> pointers;
  for (size_t i = 0; i < info.operands.size(); ++i) {
    size_t n = static_cast<size_t>(elements[i]);
    if (info.operands[i].element == OperandElement::kI32) {
      for (size_t e = 0; e < n; ++e) tokens[i].push_back(static_cast<int32_t>(e * 7 % 50));
      pointers.push_back(tokens[i].data());
    } else if (info.operands[i].element == OperandElement::kF64) {
      doubles[i].resize(n);
      pointers.push_back(doubles[i].data());
    } else {
      floats[i] = Numbers(elements[i], i + 3);
      bool positive =
          std::strcmp(info.operands[i].name, "v") == 0 || std::strcmp(info.operands[i].name, "lse") == 0;
      for (float& x : floats[i]) x = positive ? 2 + x : x;
      pointers.push_back(floats[i].data());
    }
  }
  RandomKey key{.seed = 1};
  double best = BestTimes({[&] { info.f32(pointers.data(), ints.data(), scalars.data(), &key); }})[0];
  std::string text = name;
  for (int64_t i : ints) text.append(" ").append(std::to_string(i));
  std::printf("%-48s %9.1f us %8.1f GFLOP/s %8.1f GB/s\n", text.c_str(), best * 1e6,
              info.flops(ints.data()) / best * 1e-9, info.bytes(ints.data(), 4) / best * 1e-9);
}

void BenchOthers() {
  for (const char* name : {"attention_forward", "attention_backward"}) {
    BenchKernel(name, {8, 256, 4, 4, 64, 1}, {0.125});
    BenchKernel(name, {4, 128, 4, 4, 32, 1}, {0.177});
    BenchKernel(name, {1, 2048, 8, 2, 128, 1}, {0.088});
  }
  const int64_t rows = 2048, cols = 256, wide = 2048 * 1024;
  BenchKernel("layer_norm_forward", {rows, cols}, {1e-5});
  BenchKernel("layer_norm_backward_input", {rows, cols}, {});
  BenchKernel("layer_norm_backward_params", {rows, cols}, {});
  BenchKernel("rms_norm_forward", {rows, cols}, {1e-5});
  BenchKernel("rms_norm_backward_input", {rows, cols}, {});
  BenchKernel("rms_norm_backward_weight", {rows, cols}, {});
  BenchKernel("softmax_forward", {rows, cols}, {});
  BenchKernel("gelu_forward", {wide}, {});
  BenchKernel("gelu_backward", {wide}, {});
  BenchKernel("gelu_erf_forward", {wide}, {});
  BenchKernel("silu_forward", {wide}, {});
  BenchKernel("swiglu_backward", {wide}, {});
  BenchKernel("tanh_forward", {wide}, {});
  BenchKernel("add", {rows * cols}, {});
  BenchKernel("add_bias", {rows, 1024}, {});
  BenchKernel("sum_rows", {rows, 1024}, {});
  BenchKernel("accumulate", {rows * cols}, {});
  BenchKernel("rope_forward", {8, 256, 4, 64, 0}, {10000.0});
  BenchKernel("dropout_forward", {rows * cols, 256 * cols}, {0.1});
  BenchKernel("embedding_forward", {rows, 256, cols}, {});
  BenchKernel("embedding_backward", {rows, 256, cols}, {});
  BenchKernel("cross_entropy_forward", {rows, 256}, {});
  BenchKernel("cross_entropy_backward", {rows, 256}, {});
  BenchKernel("permute_copy", {1, 1, 1, 1, 1024, 256, 0, 0, 0, 0, 1, 1024}, {});
  BenchKernel("copy_2d", {rows, cols, 0, 3 * cols, 0, cols}, {});
  BenchKernel("sum_of_squares", {1 << 20}, {});
  BenchKernel("adamw_update", {1 << 20}, {1e-3, 0.9, 0.999, 1e-8, 0.1, 0.1, 0.001});
  BenchKernel("normal_fill", {1 << 18, 0}, {0.0, 0.02});
}

}  // namespace

int main(int argc, char** argv) {
  const char* blas_path = "libopenblas.so.0";
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--blas") == 0) blas_path = argv[i + 1];
    for (Isa isa : {Isa::kPlain, Isa::kV3, Isa::kV4}) {
      if (std::strcmp(argv[i], "--isa") == 0 && IsaName(isa) == argv[i + 1] && !SelectIsa(isa)) {
        std::fprintf(stderr, "%s is not available on this processor\n", argv[i + 1]);
        return 1;
      }
    }
  }
  std::printf("instruction set %s\n", IsaName(ActiveIsa()).data());
  SgemmFn blas = LoadBlas(blas_path);
  if (blas == nullptr) std::printf("no OpenBLAS at %s: no comparison\n", blas_path);
  BenchGemm(blas);
  BenchOthers();
  return 0;
}
