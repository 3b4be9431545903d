#pragma once

// Which rows, positions and splits a block of tensor_attention.cuh has.

#include <cstdint>

#include "lamina/attention/decode_attention/tensor_attention_args.h"
#include "lamina/core/device/intrinsics.cuh"

namespace lamina::attention_internal::tensor {

struct Place {
  int64_t token;  // the first one
  int64_t sequence;
  int tokens;  // neighbours, at rising positions
  int kv_head;
  int first_row;  // of the group
  int group_rows;
  int rows;
  int slot;
  int32_t last;               // position of the first token
  int32_t begin, end;         // positions that any of the tokens attends to
  int length;                 // tiles of a split
  int tile, tile_end;         // of the block's splits
  int first_split;            // of these
  int first_tile, last_tile;  // of the context: some rows begin or end there
  bool works;                 // a block that leads its tokens

  __device__ int TokenOf(int row) const {
    return tokens == 1 ? 0 : row / group_rows;
  }
  // Of the context. NOTE: a division, needed late.
  __device__ int Splits() const {
    return (last_tile - first_tile + length) / length;
  }
};

struct TokenPlace {
  int32_t position;
  int64_t sequence;
};
// A token that is none continues nothing.
__device__ inline TokenPlace LoadToken(const TensorAttentionArgs& args,
                                       int64_t token) {
  const AttentionKernelArgs& a = args.attention;
  if (token < a.first_token || token >= args.last_token) return {-2, -1};
  return {a.positions[token], a.Sequence(token)};
}
// Whether a token can share the block of the one before it.
__device__ inline bool Continues(const AttentionKernelArgs& a,
                                 const TokenPlace& before,
                                 const TokenPlace& token) {
  return token.position == before.position + 1 &&
         token.sequence == before.sequence &&
         a.First(token.position) / kTilePositions ==
             a.First(before.position) / kTilePositions;
}

// The part of it that follows from the block's index.
__device__ inline Place PlaceOf(const TensorAttentionArgs& args,
                                int64_t block) {
  const AttentionKernelArgs& a = args.attention;
  Place place;
  uint32_t rest = static_cast<uint32_t>(block);
  const auto take = [&](const FastDivisor& divisor) {
    const uint32_t quotient = divisor.Quotient(rest);
    const uint32_t remainder = rest - quotient * divisor.divisor;
    rest = quotient;
    return static_cast<int>(remainder);
  };
  place.slot = take(args.slots);
  place.first_row = take(args.parts) * args.group_rows;
  place.kv_head = take(args.heads);
  place.token = a.first_token + rest;
  const int left = a.group - place.first_row;
  place.group_rows = left < args.group_rows ? left : args.group_rows;
  return place;
}

// The tiles of its splits, if the first of `tokens` is at `last`.
__device__ inline void TakeSplits(const TensorAttentionArgs& args, int32_t last,
                                  int tokens, Place& place) {
  place.last = last;
  place.begin = args.attention.First(last);
  place.end = last + tokens;
  place.first_tile = place.begin / kTilePositions;
  place.last_tile = last / kTilePositions;
  const int slots = static_cast<int>(args.slots.divisor);
  place.length = args.Length(place.last_tile + 1 - place.first_tile);
  int splits = 1;  // a slot
  if (args.max_splits > slots) {
    splits = static_cast<int>(
        args.slots.Quotient(static_cast<uint32_t>(place.Splits() + slots - 1)));
  }
  place.first_split = place.slot * splits;
  place.tile = place.first_tile + place.first_split * place.length;
  place.tile_end = place.tile + splits * place.length;
  if (place.tile_end > place.last_tile + 1) {
    place.tile_end = place.last_tile + 1;
  }
}

// And the part that follows from the tokens.
__device__ inline void Complete(const TensorAttentionArgs& args,
                                TokenPlace token, Place& place) {
  const AttentionKernelArgs& a = args.attention;
  const int32_t first = token.position;
  place.sequence = token.sequence;
  place.tokens = 1;
  place.works = true;
  const int run = args.run_tokens;
  if (run > 1) {
    const TokenPlace before = LoadToken(args, place.token - 1);
    TokenPlace next = LoadToken(args, place.token + 1);
    place.works = first % run == 0 || !Continues(a, before, token);
    while (next.position % run != 0 && Continues(a, token, next)) {
      ++place.tokens;
      token = next;
      next = LoadToken(args, place.token + place.tokens);
    }
  }
  place.rows = place.tokens * place.group_rows;
  TakeSplits(args, first, place.tokens, place);
}

// The tiles of a wave: every kTensorWaves-th one of each split.
class TileWalk {
 public:
  // Of the splits from tile `begin` to `end`.
  __device__ TileWalk(const Place& place, int wave, int begin, int end)
      : wave_(wave),
        length_(place.length),
        end_(end),
        tile_(begin + wave),
        split_end_(begin + place.length) {
    Skip();
  }
  __device__ bool valid() const { return tile_ < end_; }
  __device__ int tile() const { return tile_; }
  __device__ void Next() {
    tile_ += kTensorWaves;
    Skip();
  }

 private:
  // Splits in which the wave has no more.
  __device__ void Skip() {
    while (tile_ >= split_end_ && split_end_ < end_) {
      tile_ = split_end_ + wave_;
      split_end_ += length_;
    }
  }

  int wave_, length_, end_, tile_, split_end_;
};

}  // namespace lamina::attention_internal::tensor
