// Behind cooperative_code.h. What differs between the two extensions: numbers of instructions; a KHR type says what its
// matrices are used as; KHR instructions have the layout as a number before the stride, NV ones a truth value behind
// it.
#include "cooperative_code.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "rondo/base/status.h"

namespace rondo::devices::vulkan {
namespace {

using Word = std::uint32_t;
using Words = std::vector<Word>;

// Instructions, capabilities and numbers of the SPIR-V registry.
constexpr Word kMagic = 0x07230203;
constexpr std::size_t kHeader = 5;  // magic, version, generator, bound of ids, 0
constexpr Word kName = 5, kExtension = 10, kCapability = 17;
constexpr Word kTypeInt = 21, kTypeFloat = 22;
constexpr Word kConstantTrue = 41, kConstantFalse = 42, kConstant = 43;
constexpr Word kDecorate = 71;
constexpr Word kTypeMatrixNv = 5358, kLoadNv = 5359, kStoreNv = 5360, kMulAddNv = 5361, kLengthNv = 5362;
constexpr Word kTypeMatrixKhr = 4456, kLoadKhr = 4457, kStoreKhr = 4458, kMulAddKhr = 4459, kLengthKhr = 4460;
constexpr Word kFloat16Capability = 9, kMatrixNvCapability = 5357, kMatrixKhrCapability = 6022;
constexpr Word kBfloat16Capability = 5116, kBfloat16MatrixCapability = 5118;
constexpr Word kBfloat16Encoding = 0;
constexpr std::string_view kNvExtension = "SPV_NV_cooperative_matrix";
constexpr std::string_view kKhrExtension = "SPV_KHR_cooperative_matrix";
constexpr std::string_view kBfloat16Extension = "SPV_KHR_bfloat16";

/// As which operand of a multiplication matrices of a type are used; the numbers are those of the Use operand.
enum class Use : Word { kA, kB, kAccumulator };

/// An instruction: its words, of which the first has its number and length.
using Instruction = std::span<const Word>;
Word opcode(Instruction instruction) { return instruction[0] & 0xFFFFU; }

std::string text_of(Instruction instruction, std::size_t from) {
  const char* const begin = reinterpret_cast<const char*>(instruction.data() + from);
  return {begin, ::strnlen(begin, (instruction.size() - from) * sizeof(Word))};
}

void append(Words& code, Word number, std::span<const Word> operands) {
  code.push_back((static_cast<Word>(operands.size() + 1) << 16U) | number);
  code.insert(code.end(), operands.begin(), operands.end());
}

void append_extension(Words& code, std::string_view name) {
  Words text(name.size() / sizeof(Word) + 1, 0);
  std::memcpy(text.data(), name.data(), name.size());
  append(code, kExtension, text);
}

absl::Status malformed(const char* why) { return invalid_input("a kernel with cooperative matrices: {}", why); }

class Translation {
 public:
  Translation(std::span<const Word> code, bool bfloat16) : code_(code), bfloat16_(bfloat16) {}

  absl::StatusOr<Words> run() {
    RONDO_RETURN_IF_ERROR(split());
    RONDO_RETURN_IF_ERROR(find_uses());
    out_.assign(code_.begin(), code_.begin() + kHeader);
    for (const Instruction instruction : instructions_) RONDO_RETURN_IF_ERROR(translate(instruction));
    out_[3] = bound_;
    return std::move(out_);
  }

 private:
  absl::Status split() {
    if (code_.size() < kHeader || code_[0] != kMagic) return malformed("no SPIR-V");
    bound_ = code_[3];
    for (std::size_t at = kHeader; at < code_.size();) {
      const std::size_t length = code_[at] >> 16U;
      if (length == 0 || length > code_.size() - at) return malformed("an instruction is cut");
      instructions_.push_back(code_.subspan(at, length));
      at += length;
    }
    return absl::OkStatus();
  }

  /// Each type of matrices is one operand of every multiplication that it takes part in.
  absl::Status find_uses() {
    std::map<Word, Word> type_of;  // of values that are matrices
    for (const Instruction instruction : instructions_) {
      const Word number = opcode(instruction);
      if (number == kTypeMatrixNv && instruction.size() == 6) types_.insert(instruction[1]);
      if (number == kName || number == kDecorate || instruction.size() < 3) continue;
      if (types_.contains(instruction[1])) type_of[instruction[2]] = instruction[1];
    }
    for (const Instruction instruction : instructions_) {
      if (opcode(instruction) != kMulAddNv) continue;
      if (instruction.size() != 6) return malformed("a multiplication of matrices has not three operands");
      constexpr std::array kUses = {Use::kA, Use::kB, Use::kAccumulator};
      for (std::size_t i = 0; i < kUses.size(); ++i) {
        const auto type = type_of.find(instruction[3 + i]);
        if (type == type_of.end()) return malformed("it multiplies what is no matrix");
        const auto [known, fresh] = uses_.emplace(type->second, kUses[i]);
        if (!fresh && known->second != kUses[i]) return malformed("matrices of one type are used in two ways");
      }
    }
    for (const Word type : types_) {
      if (!uses_.contains(type)) return malformed("matrices of a type are never multiplied");
    }
    return absl::OkStatus();
  }

  absl::Status translate(Instruction instruction) {
    switch (opcode(instruction)) {
      case kCapability:
        translate_capability(instruction);
        return absl::OkStatus();
      case kExtension:
        if (text_of(instruction, 1) != kNvExtension) break;
        append_extension(out_, kKhrExtension);
        if (bfloat16_) append_extension(out_, kBfloat16Extension);
        return absl::OkStatus();
      case kTypeInt:
        if (instruction.size() == 4 && instruction[2] == 32 && instruction[3] == 0) {
          copy(instruction);
          declare_numbers(instruction[1]);
          return absl::OkStatus();
        }
        break;
      case kTypeFloat:
        if (!bfloat16_ || instruction.size() != 3 || instruction[2] != 16) break;
        append(out_, kTypeFloat, std::array{instruction[1], instruction[2], kBfloat16Encoding});
        return absl::OkStatus();
      case kConstantTrue:
      case kConstantFalse:
        truths_[instruction[2]] = opcode(instruction) == kConstantTrue;
        break;
      case kTypeMatrixNv:
        return translate_type(instruction);
      case kLoadNv:
        return translate_load(instruction);
      case kStoreNv:
        return translate_store(instruction);
      case kMulAddNv:
        append(out_, kMulAddKhr, instruction.subspan(1));
        return absl::OkStatus();
      case kLengthNv:
        append(out_, kLengthKhr, instruction.subspan(1));
        return absl::OkStatus();
      default:
        break;
    }
    copy(instruction);
    return absl::OkStatus();
  }

  void copy(Instruction instruction) { out_.insert(out_.end(), instruction.begin(), instruction.end()); }

  void translate_capability(Instruction instruction) {
    const Word capability = instruction[1];
    if (capability == kMatrixNvCapability) {
      append(out_, kCapability, std::array{kMatrixKhrCapability});
      if (bfloat16_) append(out_, kCapability, std::array{kBfloat16MatrixCapability});
    } else if (capability == kFloat16Capability && bfloat16_) {
      append(out_, kCapability, std::array{kBfloat16Capability});
    } else {
      copy(instruction);
    }
  }

  /// 0, 1 and 2: the three uses, and the first two the layouts by rows and by columns.
  void declare_numbers(Word type) {
    for (Word i = 0; i < 3; ++i) append(out_, kConstant, std::array{type, bound_ + i, i});
    first_number_ = bound_;
    bound_ += 3;
  }
  Word number(Word value) const { return *first_number_ + value; }

  absl::Status translate_type(Instruction instruction) {
    if (instruction.size() != 6) return malformed("a type of matrices has not four operands");
    if (!first_number_) return malformed("matrices are declared before whole numbers of 32 bits");
    append(out_, kTypeMatrixKhr,
           std::array{instruction[1], instruction[2], instruction[3], instruction[4], instruction[5],
                      number(static_cast<Word>(uses_.at(instruction[1])))});
    return absl::OkStatus();
  }

  /// The number of the layout from NV's truth value "column major".
  absl::StatusOr<Word> layout(Word column_major) const {
    const auto truth = truths_.find(column_major);
    if (truth == truths_.end() || !first_number_) return malformed("a layout is no constant");
    return number(truth->second ? 1 : 0);
  }

  /// Type, result, pointer, stride, column major, memory operands.
  absl::Status translate_load(Instruction instruction) {
    if (instruction.size() < 6) return malformed("a load of a matrix is cut");
    RONDO_ASSIGN_OR_RETURN(const Word order, layout(instruction[5]));
    Words operands = {instruction[1], instruction[2], instruction[3], order, instruction[4]};
    operands.insert(operands.end(), instruction.begin() + 6, instruction.end());
    append(out_, kLoadKhr, operands);
    return absl::OkStatus();
  }

  /// Pointer, object, stride, column major, memory operands.
  absl::Status translate_store(Instruction instruction) {
    if (instruction.size() < 5) return malformed("a store of a matrix is cut");
    RONDO_ASSIGN_OR_RETURN(const Word order, layout(instruction[4]));
    Words operands = {instruction[1], instruction[2], order, instruction[3]};
    operands.insert(operands.end(), instruction.begin() + 5, instruction.end());
    append(out_, kStoreKhr, operands);
    return absl::OkStatus();
  }

  const std::span<const Word> code_;
  const bool bfloat16_;
  std::vector<Instruction> instructions_;
  std::set<Word> types_;  // of matrices
  std::map<Word, Use> uses_;
  std::map<Word, bool> truths_;  // constants
  std::optional<Word> first_number_;
  Word bound_ = 0;
  Words out_;
};

}  // namespace

absl::StatusOr<std::vector<std::uint32_t>> khr_cooperative_code(std::span<const std::uint32_t> code, bool bfloat16) {
  return Translation(code, bfloat16).run();
}

}  // namespace rondo::devices::vulkan
