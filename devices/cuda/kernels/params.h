// What kernels are told: plain structures that the host fills in and passes by value. Pointers are the card's.
//
// Names follow OpKind's comments. A pointer that may be null says so.
#pragma once

#include <cstdint>

#include "storage.h"

namespace rondo::devices::cuda {

/// Written by a kernel that meets input it cannot work on; lies in pinned host memory, one a run.
struct Fault {
  enum class Code : std::int32_t { kNone, kIdPastTable, kTargetPastVocabulary };
  Code code;
  std::int32_t token;
  std::int32_t value;
  std::int32_t limit;
};

/// Most pairs of a head that a rotary embedding has.
inline constexpr int kMostRopePairs = 256;
/// Largest head of attention.
inline constexpr int kMostHeadDim = 512;

struct ElementwiseParams {  // add: a, b -> y; gated: a = gate, b = up; backward also c = dy -> y = dgate, z = dup;
                            // soft cap: a -> y, alpha is the cap
  const void* a;
  const void* b;
  const void* c;
  void* y;
  void* z;
  std::int64_t elements;
  std::int32_t activation;  // ActivationKind
  float alpha;              // of the clamped one, as is the limit
  float limit;
};

struct Fp8Params {   // a matrix to codes, by rows or by columns
  const void* from;  // [rows, columns]
  void* codes;       // the same, or [columns, rows]
  float* scales;     // [rows] or [columns]
  float* largest;    // by columns: [chunks of rows, columns]
  std::int64_t rows;
  std::int64_t columns;
};

struct Fp8ResultParams {
  const float* sums;           // [rows, columns]
  const float* row_scales;     // [rows]
  const float* column_scales;  // [columns]
  const void* bias;            // [columns], or null
  const void* addend;          // [rows, columns], or null
  void* y;
  std::int64_t elements;
  std::int64_t columns;
  float alpha;
  Storage bias_storage;
  Storage addend_storage;
};

struct AddRowsParams {      // a block a row of the list
  const std::int32_t* ids;  // [1 + most]: how many there are, and which
  const float* rows;        // [most, width]
  float* table;             // [height, width]
  Fault* fault;
  std::int64_t width;
  std::int64_t padding_row;  // nothing is added to it; -1: none
  std::int32_t height;
};

struct SumOfSquaresParams {
  const float* x;  // [blocks, kUpdateBlock]
  double* sums;    // [blocks]
  std::int64_t blocks;
};

struct AdamWParams {  // arrays of whole blocks of kUpdateBlock
  const float* gradient;
  const float* factors;        // [parameters, kUpdateFactors]
  const std::uint64_t* keys;   // [parameters]
  const std::int32_t* owners;  // [blocks, 2]: parameter, block within it
  float* master;
  float* first;
  float* second;
  void* published;  // null: the masters are
};

struct AdamW8Params {  // the same, of moments in codes
  const float* gradient;
  const float* factors;
  const std::uint64_t* keys;
  const std::int32_t* owners;
  float* master;
  std::int32_t* first_codes;  // four in one
  float* first_scales;        // [blocks, kUpdateBlock / kMomentBlock]
  std::int32_t* second_codes;
  float* second_scales;
  const std::int32_t* tables;  // a MomentTables
  void* published;
};

struct DropoutParams {
  const void* x;
  const std::uint64_t* keys;
  void* y;
  std::int64_t elements;
  std::int64_t columns;
  float probability;
  float kept;     // what is kept is times that
  float dropped;  // what is dropped: 0 or 1
  std::uint32_t layer;
  std::uint32_t site;
};

struct NoiseParams {
  const void* x;
  const std::uint64_t* keys;
  const std::int32_t* bounds;
  void* y;
  std::int64_t elements;
  std::int64_t columns;
  float amount;
  std::uint32_t layer;
  std::uint32_t site;
};

struct MagnitudeParams {  // a block a row of w + alpha b a
  const void* w;          // [rows, width]
  const void* a;          // [rank, width]
  const void* b;          // [rows, rank]
  const float* m;         // [rows]
  float* scale;           // [rows] m / norm
  float* inverse;         // [rows] 1 / norm
  std::int64_t width;
  std::int64_t rank;
  float alpha;
};

struct ColumnScaleParams {
  const void* x;
  const float* scale;  // [columns / each]
  const void* bias;    // [columns], may be null
  const void* addend;  // may be null
  void* y;
  std::int64_t elements;
  std::int64_t columns;
  std::int64_t each;  // columns beside one another that one scale is for
};

struct NormParams {  // a block a row
  const void* x;
  const void* w;       // may be null
  const void* bias;    // forward, may be null
  const void* dy;      // backward
  const void* addend;  // backward, may be null
  void* y;             // forward: y, backward: dx
  float* scales;       // backward, may be null: weight_factor / rms of each row
  float* means;        // likewise: what is taken off each row
  std::int64_t width;
  float epsilon;
  float weight_factor;
  float weight_offset;
  Storage weight_storage;
};

struct ColumnSumsParams {  // a block: columns_of_block() columns of one chunk of rows
  const void* dy;
  const void* x;               // may be null: then dy alone is summed, else x dy, perhaps times one of the scales below
  const float* means;          // [rows], may be null: taken off x first
  const float* scales;         // [rows], may be null
  const float* column_scales;  // [columns], may be null
  float* partial;              // [chunks, columns]
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t chunk;  // rows of a chunk
};

struct ColumnTotalsParams {
  const float* partial;  // [chunks, columns]
  float* totals;         // [columns] +=, chunk by chunk in rising order
  std::int64_t chunks;
  std::int64_t columns;
};

struct RopeParams {  // a block a token
  const void* x;
  const std::int32_t* positions;
  const std::int32_t* bounds;
  void* y;
  std::int64_t heads;
  std::int32_t half;      // pairs of a head
  std::int32_t head_dim;  // channels behind those of the pairs stay as they are
  float amplitude;
  float direction;
  float growth;
  std::uint32_t grows_from;  // 0: the amplitude does not
  std::uint32_t dynamic_from;
  double theta;
  double factor;
  bool has_long;
  float frequencies[kMostRopePairs];
  float long_frequencies[kMostRopePairs];  // past dynamic_from, where there are any
};

struct EmbeddingParams {  // a block a token
  const std::int32_t* ids;
  const void* table;
  void* x;
  Fault* fault;
  std::int64_t width;
  std::int32_t vocabulary;
  float scale;
  Storage table_storage;
  Storage x_storage;
};

struct EmbeddingRowsParams {  // the kernels of the embedding's gradient
  const std::int32_t* ids;
  const std::int32_t* bounds;
  const void* dy;
  std::int32_t* row_ids;
  float* rows;
  float* pieces;         // [sums_of_pieces(T), width]
  std::int32_t* order;   // [T] tokens by their ids
  std::int32_t* within;  // [T] by place of the order: how many before it have its id; -1: padding
  std::int32_t* count;   // [T] likewise: how many have its id
  std::int32_t* row;     // [T] likewise, of the first of an id: its row
  std::int32_t* start;   // [T] by row: its first place
  std::int64_t width;
  std::int32_t tokens;
  float scale;
  Storage dy_storage;
};

struct SelectLastParams {
  const void* x;
  const std::int32_t* bounds;
  void* y;
  std::int64_t width;
  Storage storage;
};

/// Of rondo/devices/encoding.h.
inline constexpr int kBlockElements = 64;   // elements that share a scale
inline constexpr int kBlocksOfScale = 256;  // blocks whose scales share one
inline constexpr int kNibbleCodes = 16;
inline constexpr int kMxfp4Elements = 32;  // that share a scale
inline constexpr int kMapCodes = 256;

struct ExpandInt8Params {
  const std::int8_t* codes;
  const float* scales;
  void* y;
  std::int64_t elements;
};

struct ExpandNf4Params {
  const std::uint8_t* codes;
  const std::uint8_t* block_codes;
  const float* block_scales;
  const float* offset;
  void* y;
  std::int64_t elements;
  float values[kNibbleCodes];
  float map[kMapCodes];
};

struct ExpandMxfp4Params {
  const std::uint8_t* codes;
  const std::uint8_t* scales;
  void* y;
  std::int64_t elements;
  float doubled[kNibbleCodes];
};

/// Of EncodeHadamard, which reads the numbers, and of ExpandHadamard, which writes them.
struct HadamardParams {
  void* numbers;
  std::uint8_t* codes;
  float* scales;
  std::int64_t blocks;
  float limit;  // the largest code
  float share;  // of a block's largest sum: the scale
  float least;  // a block whose sums are all smaller is zero
  std::int32_t four_bits;
};

struct AttentionParams {
  const void* q;
  const void* k;
  const void* v;
  const std::int32_t* bounds;
  const void* d_o;  // backward
  void* o;          // written by the forward, read by the backward
  float* lse;       // likewise
  float* delta;     // backward: [T, H] do . o
  void* dq;
  void* dk;
  void* dv;
  float* dk_parts;  // backward, where splits > 1: [splits, T, Hkv, D], sums over a part of a key head's query heads
  float* dv_parts;
  std::int32_t tokens;
  std::int32_t heads;
  std::int32_t kv_heads;
  std::int32_t head_dim;
  std::int32_t splits;  // parts that the query heads of a key head go in, equally many in each
  std::int32_t tile;    // rows of a tile, see attention_tile()
  std::int32_t window;  // 0: none
  float scale;
  float cap;  // of scores, behind the scale; 0: none
};

struct CachedAttentionParams {
  const void* q;
  const void* k;
  const void* v;
  const std::int32_t* positions;
  const std::int32_t* bounds;
  void* k_cache;
  void* v_cache;
  void* o;
  float* lse;
  std::int32_t heads;
  std::int32_t kv_heads;
  std::int32_t head_dim;
  std::int32_t window;
  float scale;
  float cap;  // 0: none
};

struct JoinHeadsParams {  // y [T, heads, width]: of each head a's channels, then b's, then zeros
  const void* a;          // [T, a_heads, a_width], a_heads being heads or 1
  const void* b;          // likewise, or null
  void* y;
  std::int64_t elements;  // of y
  std::int64_t heads;
  std::int64_t width;
  std::int64_t a_heads;
  std::int64_t a_width;
  std::int64_t b_heads;
  std::int64_t b_width;
};

struct HeadPartParams {   // the gradient of a or b
  const void* dy;         // [T, H, width]
  void* dx;               // [T, H / shared, x_width]
  std::int64_t elements;  // of dx
  std::int64_t shared;    // heads that have one row of it
  std::int64_t width;
  std::int64_t x_width;
  std::int64_t first;  // channel of dy
};

struct AttentionSinkParams {  // and its gradient
  const void* o;              // [T, H, D], as it was, or as written
  const float* lse;           // [T, H], likewise
  const void* sinks;          // [H]
  const void* d_o;            // gradient
  void* y;
  float* total;    // [T, H]
  float* partial;  // gradient: [chunks, H]
  std::int32_t tokens;
  std::int32_t heads;
  std::int32_t head_dim;
};

/// Widest convolution, and largest head of the delta rule.
inline constexpr int kMostTaps = 8;
inline constexpr int kMostRuleSize = 128;

struct ConvolutionParams {  // and its gradient
  const void* x;            // [T, C]
  const void* w;            // [C, W]
  const void* bias;         // [C], may be null
  const std::int32_t* bounds;
  const std::int32_t* positions;  // may be null, as may be the state
  const void* dy;                 // gradient
  void* state;                    // [W - 1, C]
  void* y;                        // gradient: dx
  float* partial;                 // gradient: [chunks, C, W], may be null
  std::int64_t channels;
  std::int32_t tokens;
  std::int32_t width;       // W
  std::int32_t activation;  // ActivationKind: SiLU or identity
};

struct DecayParams {   // and its gradient
  const void* a;       // [T, Hv]
  const void* b;       // null of a state space, as is db
  const float* rates;  // [Hv]
  const float* bias;
  const float* dg;  // gradient
  const float* dbeta;
  float* g;
  float* beta;
  void* da;
  void* db;
  float* rate_parts;  // gradient: [chunks, Hv], may be null, as may be the bias's
  float* bias_parts;
  std::int64_t tokens;
  std::int64_t heads;
  float least_step;  // of a state space
  float most_step;
};

/// The delta rule and its gradient. A segment is some chunks of kRuleChunk tokens from `first` on, m of them; what is
/// said to be of the segment has its rows alone.
struct RuleParams {
  const void* q;  // [T, Hk, D]
  const void* k;
  const void* v;      // [T, Hv, Dv]
  const float* g;     // [T, Hv]
  const float* beta;  // [T, Hv]
  const std::int32_t* bounds;
  const std::int32_t* positions;  // may be null
  const void* d_o;                // gradient, as is what follows
  void* o;                        // forward
  float* state;                   // [Hv, D, Dv], may be null
  float* checkpoints;             // [chunks, Hv, D, Dv]; forward: null where there is a state
  float* errors;                  // of the segment: [tokens, Hv, Dv] v - S^T k, of a state space v
  float* pulls;                   // of the segment: [tokens, Hv, Dv] dS^T k, dS with the token's own part
  float* ends;                    // of the segment: [m, Hv, D, Dv] dS behind each chunk whose last sequence goes on
  const float* carried;           // [Hv, D, Dv] dS behind the segment
  float* carry;                   // [Hv, D, Dv] dS before it
  float* dq_parts;                // of the segment: [tokens, Hv, D] of rows of length one, by value head
  float* dk_parts;
  void* dq;
  void* dk;
  void* dv;
  float* dg;
  float* dbeta;
  std::int32_t tokens;
  std::int32_t key_heads;
  std::int32_t heads;
  std::int32_t size;   // D
  std::int32_t width;  // Dv
  std::int32_t slots;  // blocks that share the sequences
  std::int32_t first;
  std::int32_t length;  // of the segment
  std::int32_t state_space;
};

/// The kernels around the products of the loss over the vocabulary, by chunks of tokens that have a target.
struct CrossEntropyParams {
  const void* x;
  const std::int32_t* targets;
  std::int32_t* places;     // [T + 1]: the number of tokens with a target, then these tokens
  void* gathered;           // [chunk, C] rows of x, zero past the last
  float* logits;            // [chunk, N] of the part
  void* gradient;           // [chunk, N] (softmax - onehot) * loss scale, may be null
  const void* dgathered;    // [chunk, C]
  void* dx;                 // [T, C]
  const float* loss_scale;  // [1], null: 1
  double* losses;           // [T]
  double* loss;             // [1]
  Fault* fault;
  const float* before;  // [T, 3] statistics of the parts of a vocabulary before this one, may be null
  float* statistics;    // [T, 3]: maximum, sum of exponentials over it, the target's logit
  float* normalisers;   // [T, 2]: maximum, 1 / sum of exponentials over it, of all parts
  std::int64_t width;
  std::int32_t vocabulary;  // rows of all parts
  std::int32_t tokens;
  std::int32_t begin;      // of the chunk, in `places`
  std::int32_t first_row;  // of the part
  std::int32_t rows;       // N of the part
  float cap;               // of logits, which lie in memory without it; 0: none
};

/// Most experts of a group.
inline constexpr int kMostGroup = 256;  // experts whose addresses a launch has

struct RouteParams {   // where tokens go, and its gradient
  const void* logits;  // [T, E]
  const std::int32_t* bounds;
  float* shares;          // [T, k], read by the gradient
  std::int32_t* experts;  // [T, k], likewise
  std::int32_t* rows;     // [T, k]
  std::int32_t* offsets;  // [E + 1]
  const float* dshares;   // gradient: [T, k]
  void* dlogits;
  const float* bias;     // [E], may be null
  std::int32_t count;    // E
  std::int32_t choices;  // k
  std::int32_t normalised;
  std::int32_t sigmoid;
  std::int32_t groups;
  std::int32_t chosen_groups;
  float factor;
  float added;  // to the sum of scores that are normalised
};

struct ShareScaleParams {       // what a token gets from an expert, times a number of the expert
  const float* x;               // [T, k]
  const std::int32_t* experts;  // [T, k]
  const float* scale;           // [E]
  const float* shares;          // gradient of the scale: [T, k]
  float* y;                     // [T, k], or [E] to be added to
  std::int64_t elements;        // T k
};

struct SpreadParams {  // tokens to the rows of their experts, and back
  const void* x;       // dispatch: [T, C], else [k T, C]
  const std::int32_t* rows;
  const float* shares;  // [T, k], may be null
  const void* addend;   // [T, C], may be null
  const void* dy;       // gradient: [T, C]
  void* y;              // combine: [T, C], else [k T, C]
  float* dshares;       // gradient: [T, k]
  std::int64_t width;
  std::int32_t choices;
  float alpha;
};

/// C [k T, N] = alpha A W + addend, an expert's rows by its W; zeros behind the last expert's.
struct GroupedParams {
  const void* a;                // [k T, inner]
  const std::int32_t* offsets;  // [experts + 1]
  const void* addend;           // [k T, N], may be null
  void* c;
  std::int64_t rows;     // k T
  std::int64_t columns;  // N
  std::int64_t inner;
  std::int32_t experts;
  std::int32_t first;       // of those that the launch is for
  std::int32_t transposed;  // W lies as [N, inner], else [inner, N]
  float alpha;
  const void* w[kMostGroup];  // by expert, from `first` on
};

/// dW [N, K] += alpha dy^T x over the rows of each expert.
struct GroupedGradientParams {
  const void* dy;               // [k T, N]
  const void* x;                // [k T, K]
  const std::int32_t* offsets;  // [experts + 1]
  const void* addend;           // null: what is there counts as zero
  std::int64_t rows;            // N
  std::int64_t columns;         // K
  std::int32_t first;           // expert of those that the launch is for
  float alpha;
  float* dw[kMostGroup];  // by expert, from `first` on
};

/// y [k T, N] = x + bias of each row's expert, zeros behind the last expert's; and the sums of x over each one's rows.
struct GroupedBiasParams {
  const void* x;
  const std::int32_t* offsets;  // [experts + 1]
  const void* bias;             // [experts, N]
  void* y;
  float* partial;        // sums: [tiles_of_group(), N] of each chunk
  float* totals;         // sums: [experts, N] +=
  std::int64_t rows;     // k T
  std::int64_t columns;  // N
  std::int32_t experts;
};

/// C [M, N] = alpha A B + bias + addend, summed over K in rising order by one thread an element.
struct ProductParams {
  const void* a;       // element (m, k) at m a_row + k a_column
  const void* b;       // element (k, n) at k b_row + n b_column
  const void* bias;    // [N], may be null
  const void* addend;  // [M, N], may be null or c
  void* c;
  std::int64_t rows;     // M
  std::int64_t columns;  // N
  std::int64_t inner;    // K
  std::int64_t a_row;
  std::int64_t a_column;
  std::int64_t b_row;
  std::int64_t b_column;
  float alpha;
  Storage bias_storage;
  Storage addend_storage;
  Storage c_storage;
};

}  // namespace rondo::devices::cuda
