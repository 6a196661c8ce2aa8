#include "horo/checkpoint/folder_names.h"

#include <sys/random.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <string_view>
#include <system_error>

#include "horo/checkpoint/index.h"
#include "ring/os/socket.h"

namespace horo::checkpoint {
namespace {

constexpr std::size_t kRandomDigits = 16;

std::string with_random_number(const char* beginning, const std::string& final_name) {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof(number), 0) != sizeof(number)) raise_errno("getrandom");
  std::array<char, kRandomDigits + 1> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(number));
  return beginning + final_name + "-" + digits.data();
}

}  // namespace

std::string temporary_name_for(const std::string& final_name) {
  return with_random_number(kTemporary, final_name);
}

std::string replaced_name_for(const std::string& final_name) {
  return with_random_number(kReplaced, final_name);
}

std::string removed_name_for(const std::string& final_name) {
  return with_random_number(kRemoved, final_name);
}

std::optional<std::string> final_name_in(const std::string& name, const std::string& beginning) {
  const std::size_t around = beginning.size() + 1 + kRandomDigits;
  if (!name.starts_with(beginning) || name.size() <= around) return std::nullopt;
  const std::size_t end = name.size() - kRandomDigits;
  if (name[end - 1] != '-' || name.find_first_not_of("0123456789abcdef", end) != std::string::npos) return std::nullopt;
  return name.substr(beginning.size(), name.size() - around);
}

std::optional<std::uint64_t> step_in(const std::string& name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::uint64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc() || stop != end) return std::nullopt;
  return step;
}

std::string message_file(std::size_t rank) {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "rank-%05zu", rank);
  return name.data();
}

bool is_message_file(const std::string& name) {
  return name.starts_with("rank-");
}

bool is_part_file(const std::string& name) {
  return name.starts_with("part-") && name.ends_with(".safetensors");
}

// A file that is being made has one more letter.
bool is_own_file(const std::string& name) {
  const std::string whole = name.ends_with('~') ? name.substr(0, name.size() - 1) : name;
  return whole == kIndexFile || whole == kFailure || is_message_file(whole) || is_part_file(whole);
}

}  // namespace horo::checkpoint
