// SPDX-License-Identifier: Apache-2.0
// The tile operations of AMX in plain code, after the definition in Intel's manual (TILELOADD, TDPBSUD,
// TILESTORED). Tests run it instead of tiles_machine.inl. It aborts where the machine would fault.

struct EmulatedTiles {
  TileConfig config;
  u8 data[8][16][64];

  void configure(const TileConfig& wanted) {
    config = wanted;
    bool sound = wanted.palette == 1 && wanted.start_row == 0;
    for (int i = 0; i < 16; ++i) {
      sound = sound && wanted.rows[i] <= 16 && wanted.row_bytes[i] <= 64;
      sound = sound && (i < 8 || (wanted.rows[i] == 0 && wanted.row_bytes[i] == 0));
      sound = sound && (wanted.rows[i] == 0) == (wanted.row_bytes[i] == 0);
    }
    if (!sound) __builtin_trap();
    __builtin_memset(data, 0, sizeof(data));
  }
  void release() { config = {}; }

  template <int kTile>
  void load(const void* from, long stride) {
    zero<kTile>();
    for (int row = 0; row < config.rows[kTile]; ++row) {
      __builtin_memcpy(data[kTile][row], static_cast<const u8*>(from) + row * stride,
                       config.row_bytes[kTile]);
    }
  }
  template <int kTile>
  void store(void* to, long stride) {
    for (int row = 0; row < config.rows[kTile]; ++row) {
      __builtin_memcpy(static_cast<u8*>(to) + row * stride, data[kTile][row], config.row_bytes[kTile]);
    }
  }
  template <int kTile>
  void zero() {
    if (config.rows[kTile] == 0) __builtin_trap();
    __builtin_memset(data[kTile], 0, sizeof(data[kTile]));
  }
  template <int kSum, int kSigned, int kUnsigned>
  void multiply() {
    const int rows = config.rows[kSum], columns = config.row_bytes[kSum] / 4, inner = config.rows[kUnsigned];
    if (config.rows[kSigned] != rows || config.row_bytes[kSigned] != 4 * inner ||
        config.row_bytes[kUnsigned] != config.row_bytes[kSum]) {
      __builtin_trap();
    }
    for (int row = 0; row < rows; ++row) {
      for (int column = 0; column < columns; ++column) {
        i32 sum;
        __builtin_memcpy(&sum, data[kSum][row] + 4 * column, 4);
        for (int k = 0; k < 4 * inner; ++k) {
          sum += static_cast<i8>(data[kSigned][row][k]) *
                 static_cast<i32>(data[kUnsigned][k / 4][4 * column + k % 4]);
        }
        __builtin_memcpy(data[kSum][row] + 4 * column, &sum, 4);
      }
    }
  }
};
