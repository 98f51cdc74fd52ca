#include "kernels/block_product.h"

namespace piper::kernels::PIPER_ISA {
namespace {

template <int kRows>
constexpr TileFunction TileOfRows(int64_t rows, int64_t vectors, bool columns) {
  if constexpr (kRows == 0) {
    return nullptr;
  } else {
    if (rows != kRows) return TileOfRows<kRows - 1>(rows, vectors, columns);
    if (vectors == kTileVectors) {
      return columns ? &ComputeTile<kRows, kTileVectors, true> : &ComputeTile<kRows, kTileVectors, false>;
    }
    return columns ? &ComputeTile<kRows, 1, true> : &ComputeTile<kRows, 1, false>;
  }
}

struct TileTable {
  TileFunction tiles[kTileRows + 1][2][2];
};

// Constant: a dynamic initialiser would run code for this instruction set on processors that lack it.
constexpr TileTable kTable = [] {
  TileTable table{};
  for (int rows = 1; rows <= kTileRows; ++rows) {
    for (int columns = 0; columns < 2; ++columns) {
      table.tiles[rows][0][columns] = TileOfRows<kTileRows>(rows, 1, columns != 0);
      table.tiles[rows][1][columns] = TileOfRows<kTileRows>(rows, kTileVectors, columns != 0);
    }
  }
  return table;
}();

}  // namespace

TileFunction FindTile(int64_t rows, int64_t vectors, bool columns) {
  return kTable.tiles[rows][vectors == kTileVectors ? 1 : 0][columns ? 1 : 0];
}

}  // namespace piper::kernels::PIPER_ISA
