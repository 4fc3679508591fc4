// The built-in cards: dense matrix products with fp32 accumulation, memory, and link, from the vendors' publications.
//
// GeForce cards multiply at half rate when they accumulate in fp32; that half is listed. A dtype without a figure has
// no fast path on the card (Turing has no bf16, RDNA 2 no matrix units). The efficiency is our own estimate of what
// large products reach, not a vendor's figure.
#include <string>
#include <vector>

#include "catalogue.h"

namespace rondo::devices {
namespace {

constexpr double kTera = 1e12;
constexpr double kGiga = 1e9;

// Bytes/s that pinned copies reach in one direction, not the bus's nominal rate.
constexpr double kPcie3x16 = 12.3e9;
constexpr double kPcie4x8 = 12.8e9;
constexpr double kPcie4x16 = 25e9;
constexpr double kPcie5x8 = 25e9;
constexpr double kPcie5x16 = 50e9;

struct Row {
  const char* name;
  double bf16;  // TFLOP/s; 0: no figure
  double fp16;
  double fp32;
  double gib;
  double bandwidth;  // GB/s
  double link;       // bytes/s each way
  double efficiency;
  const char* source;
  bool fp8 = false;  // products of eight bits with fp32 sums: by the same sources twice the speed of bf16's
};

constexpr const char* kTuring = "NVIDIA Turing GPU architecture whitepaper (WP-09183-001), reference clocks";
constexpr const char* kPascal = "NVIDIA GeForce GTX 10 product pages: CUDA cores x 2 x boost clock, memory";
constexpr const char* kSuper20 =
    "NVIDIA GeForce RTX 20 Super product pages: CUDA cores x 2 x boost clock, four times that";
constexpr const char* kAmpere = "NVIDIA Ampere GA102 GPU architecture whitepaper, and NVIDIA's product pages";
constexpr const char* kAda = "NVIDIA Ada GPU architecture whitepaper, and NVIDIA's product pages";
constexpr const char* kBlackwell = "NVIDIA RTX Blackwell GPU architecture whitepaper, and NVIDIA's product pages";
constexpr const char* kRadeon = "AMD Radeon product pages: peak half and single precision";
constexpr const char* kInstinct =
    "AMD Instinct product pages: peak half precision (matrix), bfloat16, single precision";
constexpr const char* kRdna2 = "AMD Radeon RX 6000 product pages: peak half and single precision";
constexpr const char* kRdna3 = "AMD Radeon RX 7000 product pages: peak half precision matrix and single precision";
constexpr const char* kRdna4 = "AMD Radeon RX 9000 product pages: peak half precision matrix (dense), single precision";
constexpr const char* kAlchemist = "Intel Arc A-series product pages: half of the peak INT8 TOPS of the XMX engines";
constexpr const char* kBattlemage = "Intel Arc B-series product pages: half of the peak INT8 TOPS of the XMX engines";
constexpr const char* kApple = "Apple's product pages (memory bandwidth); GPU cores x 128 lanes x 2 x clock";
constexpr const char* kIntegrated =
    "vendor's product page: shader lanes x 2 x clock, rated memory; half of the memory set aside";

constexpr Row kRows[] = {
    // GeForce GTX: no matrix units
    {"gtx1070", 0, 0, 6.5, 8, 256, kPcie3x16, 0.8, kPascal},
    {"gtx1080", 0, 0, 8.9, 8, 320, kPcie3x16, 0.8, kPascal},
    {"gtx1080ti", 0, 0, 11.3, 11, 484, kPcie3x16, 0.8, kPascal},
    // GeForce RTX 20
    {"rtx2060", 0, 25.8, 6.5, 6, 336, kPcie3x16, 0.8, kTuring},
    {"rtx2060super", 0, 28.7, 7.2, 8, 448, kPcie3x16, 0.8, kSuper20},
    {"rtx2070", 0, 29.9, 7.5, 8, 448, kPcie3x16, 0.8, kTuring},
    {"rtx2070super", 0, 36.3, 9.1, 8, 448, kPcie3x16, 0.8, kSuper20},
    {"rtx2080", 0, 40.3, 10.1, 8, 448, kPcie3x16, 0.8, kTuring},
    {"rtx2080super", 0, 44.6, 11.2, 8, 496, kPcie3x16, 0.8, kSuper20},
    {"rtx2080ti", 0, 53.8, 13.4, 11, 616, kPcie3x16, 0.8, kTuring},
    {"titan-rtx", 0, 130.5, 16.3, 24, 672, kPcie3x16, 0.7, kTuring},
    // GeForce RTX 30
    {"rtx3050", 18.2, 18.2, 9.1, 8, 224, kPcie4x8, 0.85, kAmpere},
    {"rtx3060", 25.5, 25.5, 12.7, 12, 360, kPcie4x16, 0.85, kAmpere},
    {"rtx3060ti", 32.4, 32.4, 16.2, 8, 448, kPcie4x16, 0.85, kAmpere},
    {"rtx3070", 40.6, 40.6, 20.3, 8, 448, kPcie4x16, 0.85, kAmpere},
    {"rtx3070ti", 43.5, 43.5, 21.7, 8, 608, kPcie4x16, 0.85, kAmpere},
    {"rtx3080", 59.5, 59.5, 29.8, 10, 760, kPcie4x16, 0.85, kAmpere},
    {"rtx3080-12g", 61.3, 61.3, 30.6, 12, 912, kPcie4x16, 0.85, kAmpere},
    {"rtx3080ti", 68.2, 68.2, 34.1, 12, 912, kPcie4x16, 0.85, kAmpere},
    {"rtx3090", 71.0, 71.0, 35.6, 24, 936, kPcie4x16, 0.85, kAmpere},
    {"rtx3090ti", 80.0, 80.0, 40.0, 24, 1008, kPcie4x16, 0.85, kAmpere},
    // GeForce RTX 40
    {"rtx4060", 30.2, 30.2, 15.1, 8, 272, kPcie4x8, 0.85, kAda, true},
    {"rtx4060ti", 44.1, 44.1, 22.1, 8, 288, kPcie4x8, 0.85, kAda, true},
    {"rtx4060ti-16g", 44.1, 44.1, 22.1, 16, 288, kPcie4x8, 0.85, kAda, true},
    {"rtx4070", 58.3, 58.3, 29.1, 12, 504, kPcie4x16, 0.85, kAda, true},
    {"rtx4070super", 71.0, 71.0, 35.5, 12, 504, kPcie4x16, 0.85, kAda, true},
    {"rtx4070ti", 80.2, 80.2, 40.1, 12, 504, kPcie4x16, 0.85, kAda, true},
    {"rtx4070tisuper", 88.2, 88.2, 44.1, 16, 672, kPcie4x16, 0.85, kAda, true},
    {"rtx4080", 97.5, 97.5, 48.7, 16, 716.8, kPcie4x16, 0.85, kAda, true},
    {"rtx4080super", 104.4, 104.4, 52.2, 16, 736, kPcie4x16, 0.85, kAda, true},
    {"rtx4090", 165.2, 165.2, 82.6, 24, 1008, kPcie4x16, 0.85, kAda, true},
    // GeForce RTX 50
    {"rtx5060", 38.4, 38.4, 19.2, 8, 448, kPcie5x8, 0.85, kBlackwell, true},
    {"rtx5060ti", 47.4, 47.4, 23.7, 16, 448, kPcie5x8, 0.85, kBlackwell, true},
    {"rtx5060ti-8g", 47.4, 47.4, 23.7, 8, 448, kPcie5x8, 0.85, kBlackwell, true},
    {"rtx5070", 61.7, 61.7, 30.9, 12, 672, kPcie5x16, 0.85, kBlackwell, true},
    {"rtx5070ti", 87.9, 87.9, 43.9, 16, 896, kPcie5x16, 0.85, kBlackwell, true},
    {"rtx5080", 112.6, 112.6, 56.3, 16, 960, kPcie5x16, 0.85, kBlackwell, true},
    {"rtx5090", 209.5, 209.5, 104.8, 32, 1792, kPcie5x16, 0.85, kBlackwell, true},
    // NVIDIA workstation and data centre
    {"t4", 0, 65.0, 8.1, 16, 320, kPcie3x16, 0.6, "NVIDIA T4 data sheet"},
    {"p40", 0, 0, 12.0, 24, 346, kPcie3x16, 0.8, "NVIDIA Tesla P40 data sheet"},
    {"p100-16g", 0, 18.7, 9.3, 16, 732, kPcie3x16, 0.8, "NVIDIA Tesla P100 data sheet, PCIe"},
    {"v100-32g", 0, 125.0, 15.7, 32, 900, kPcie3x16, 0.75, "NVIDIA V100 data sheet, SXM2"},
    {"a10", 125.0, 125.0, 31.2, 24, 600, kPcie4x16, 0.7, "NVIDIA A10 data sheet"},
    {"a4000", 76.7, 76.7, 19.2, 16, 448, kPcie4x16, 0.8, "NVIDIA RTX A4000 data sheet, without sparsity"},
    {"a5000", 111.1, 111.1, 27.8, 24, 768, kPcie4x16, 0.8, "NVIDIA RTX A5000 data sheet, without sparsity"},
    {"l4", 121.0, 121.0, 30.3, 24, 300, kPcie4x16, 0.6, "NVIDIA L4 data sheet, without sparsity", true},
    {"l40s", 362.0, 362.0, 91.6, 48, 864, kPcie4x16, 0.7, "NVIDIA L40S data sheet, without sparsity", true},
    {"a6000", 154.8, 154.8, 38.7, 48, 768, kPcie4x16, 0.8, "NVIDIA RTX A6000 data sheet, without sparsity"},
    {"rtx6000-ada", 364.2, 364.2, 91.1, 48, 960, kPcie4x16, 0.75, "NVIDIA RTX 6000 Ada data sheet, without sparsity",
     true},
    {"a100-40g", 312.0, 312.0, 19.5, 40, 1555, kPcie4x16, 0.8, "NVIDIA A100 data sheet, SXM4 40 GB"},
    {"a100-80g", 312.0, 312.0, 19.5, 80, 2039, kPcie4x16, 0.8, "NVIDIA A100 data sheet, SXM4 80 GB"},
    {"h100-pcie", 756.0, 756.0, 51.2, 80, 2000, kPcie5x16, 0.65, "NVIDIA H100 data sheet, PCIe, without sparsity",
     true},
    {"h100-sxm", 989.4, 989.4, 66.9, 80, 3350, kPcie5x16, 0.7, "NVIDIA H100 data sheet, SXM5, without sparsity", true},
    {"h200", 989.4, 989.4, 66.9, 140, 4800, kPcie5x16, 0.7, "NVIDIA H200 data sheet, SXM, without sparsity", true},
    // Radeon before the RX 6000: no matrix units, half precision in pairs from Vega on
    {"rx580", 0, 0, 6.2, 8, 256, kPcie3x16, 0.6, kRadeon},
    {"vega64", 0, 25.3, 12.7, 8, 484, kPcie3x16, 0.6, kRadeon},
    {"radeon-vii", 0, 26.9, 13.4, 16, 1024, kPcie3x16, 0.6, kRadeon},
    {"rx5700xt", 0, 19.5, 9.75, 8, 448, kPcie4x16, 0.6, kRadeon},
    // Radeon RX 6000: no matrix units, half precision by packed dot products
    {"rx6600", 0, 17.9, 8.9, 8, 224, kPcie4x8, 0.6, kRdna2},
    {"rx6600xt", 0, 21.2, 10.6, 8, 256, kPcie4x8, 0.6, kRdna2},
    {"rx6700xt", 0, 26.4, 13.2, 12, 384, kPcie4x16, 0.6, kRdna2},
    {"rx6750xt", 0, 26.6, 13.3, 12, 432, kPcie4x16, 0.6, kRdna2},
    {"rx6800", 0, 32.3, 16.2, 16, 512, kPcie4x16, 0.6, kRdna2},
    {"rx6800xt", 0, 41.5, 20.7, 16, 512, kPcie4x16, 0.6, kRdna2},
    {"rx6900xt", 0, 46.1, 23.0, 16, 512, kPcie4x16, 0.6, kRdna2},
    {"rx6950xt", 0, 47.3, 23.7, 16, 576, kPcie4x16, 0.6, kRdna2},
    // Radeon RX 7000
    {"rx7600", 43.5, 43.5, 21.7, 8, 288, kPcie4x8, 0.6, kRdna3},
    {"rx7600xt", 45.1, 45.1, 22.6, 16, 288, kPcie4x8, 0.6, kRdna3},
    {"rx7700xt", 70.3, 70.3, 35.2, 12, 432, kPcie4x16, 0.6, kRdna3},
    {"rx7800xt", 74.7, 74.7, 37.3, 16, 624, kPcie4x16, 0.6, kRdna3},
    {"rx7900gre", 92.0, 92.0, 46.0, 16, 576, kPcie4x16, 0.6, kRdna3},
    {"rx7900xt", 103.0, 103.0, 51.5, 20, 800, kPcie4x16, 0.6, kRdna3},
    {"rx7900xtx", 122.8, 122.8, 61.4, 24, 960, kPcie4x16, 0.6, kRdna3},
    // Radeon RX 9000
    {"rx9060xt", 103.0, 103.0, 25.6, 16, 320, kPcie5x16, 0.6, kRdna4},
    {"rx9070", 145.0, 145.0, 36.1, 16, 640, kPcie5x16, 0.6, kRdna4},
    {"rx9070xt", 195.0, 195.0, 48.7, 16, 640, kPcie5x16, 0.6, kRdna4},
    // AMD workstation and data centre
    {"w7900", 122.6, 122.6, 61.3, 48, 864, kPcie4x16, 0.6, "AMD Radeon PRO W7900 data sheet"},
    {"mi50-16g", 0, 26.5, 13.3, 16, 1024, kPcie4x16, 0.6, kInstinct},
    {"mi50-32g", 0, 26.5, 13.3, 32, 1024, kPcie4x16, 0.6, kInstinct},
    {"mi60", 0, 29.5, 14.7, 32, 1024, kPcie4x16, 0.6, kInstinct},
    {"mi100", 92.3, 184.6, 23.1, 32, 1228.8, kPcie4x16, 0.6, kInstinct},
    {"mi210", 181.0, 181.0, 22.6, 64, 1638.4, kPcie4x16, 0.6, kInstinct},
    {"mi300x", 1307.4, 1307.4, 163.4, 192, 5300, kPcie5x16, 0.5, kInstinct},
    // Arc
    {"arc-a380", 33.0, 33.0, 4.2, 6, 186, kPcie4x8, 0.55, kAlchemist},
    {"arc-a580", 98.5, 98.5, 12.3, 8, 512, kPcie4x16, 0.55, kAlchemist},
    {"arc-a750", 114.5, 114.5, 14.7, 8, 512, kPcie4x16, 0.55, kAlchemist},
    {"arc-a770", 131.0, 131.0, 17.2, 16, 560, kPcie4x16, 0.55, kAlchemist},
    {"arc-b570", 101.5, 101.5, 11.5, 10, 380, kPcie4x8, 0.6, kBattlemage},
    {"arc-b580", 116.5, 116.5, 13.7, 12, 456, kPcie4x8, 0.6, kBattlemage},
    {"arc-pro-b50", 85.0, 85.0, 10.7, 16, 224, kPcie5x8, 0.6, kBattlemage},
    {"arc-pro-b60", 98.5, 98.5, 12.3, 24, 456, kPcie5x8, 0.6, kBattlemage},
    // One memory with the host: a copy reads and writes it
    {"apple-m2", 3.6, 3.6, 3.6, 12, 100, 50e9, 0.8, kApple},
    {"apple-m2-ultra", 27.2, 27.2, 27.2, 96, 800, 200e9, 0.8, kApple},
    {"apple-m3-max", 14.1, 14.1, 14.1, 48, 400, 150e9, 0.8, kApple},
    {"arc-140v", 33.5, 33.5, 4.0, 16, 136, 50e9, 0.5, kIntegrated},
    {"iris-xe", 0, 4.2, 2.1, 8, 68, 25e9, 0.6, kIntegrated},
    {"radeon-780m", 16.6, 16.6, 8.3, 16, 89.6, 35e9, 0.5, kIntegrated},
    {"radeon-8060s", 59.4, 59.4, 29.7, 64, 256, 80e9, 0.5, kIntegrated},
};

}  // namespace

std::vector<DeviceProfile> built_in_cards() {
  std::vector<DeviceProfile> cards;
  for (const Row& row : kRows) {
    DeviceProfile card;
    card.name = row.name;
    card.flops[DType::kFloat32] = row.fp32 * kTera;
    if (row.bf16 > 0) card.flops[DType::kBfloat16] = row.bf16 * kTera;
    if (row.fp16 > 0) card.flops[DType::kFloat16] = row.fp16 * kTera;
    if (row.fp8) card.fp8_flops = 2 * row.bf16 * kTera;
    card.memory_bytes = static_cast<Bytes>(row.gib * static_cast<double>(1_GiB));
    card.memory_bandwidth = row.bandwidth * kGiga;
    card.link_up = row.link;
    card.link_down = row.link;
    card.efficiency = row.efficiency;
    card.source = row.source;
    card.weights_in_place = card.source == kIntegrated;
    cards.push_back(card);
  }
  return cards;
}

}  // namespace rondo::devices
