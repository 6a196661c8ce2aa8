// A Python traceback is a headline, indented lines, and the exception on a line that is not indented. The cause of an
// exception is printed before it, with its own traceback.
#include "tools/horo/run/output_tail.h"

#include <cctype>
#include <charconv>

namespace horo::tools {
namespace {

constexpr std::string_view kHeadline = "Traceback (most recent call last):";
constexpr std::string_view kStack = "At:";
constexpr std::string_view kTerminate = "terminate called after throwing an instance of '";
constexpr std::string_view kWhat = "  what():  ";

bool is_of_type(std::string_view exception, std::string_view name) {
  const std::string_view type = exception.substr(0, exception.find_first_of(" ("));
  const std::size_t at = type.find(name);
  return at != std::string_view::npos && (at == 0 || type[at - 1] == '.' || type[at - 1] == ':');
}

// The part that names the rank that was lost or has left; empty if the exception is about no other rank's end.
std::string_view loss_in(std::string_view exception) {
  if (is_of_type(exception, "PeerLost")) return exception;
  if (const std::size_t inner = exception.find(": PeerLost: "); inner != std::string_view::npos) {
    return exception.substr(inner + 2);
  }
  const std::size_t left = exception.find(" has left (horo.shutdown");
  if (!is_of_type(exception, "Mismatch") || left == std::string_view::npos) return "";
  const std::size_t rank = exception.rfind("rank ", left);  // a tensor's name is in front of it
  return rank == std::string_view::npos ? "" : exception.substr(rank);
}

// torch.distributed puts "[rank0]: " before each line of a traceback.
std::string_view without_rank(std::string_view line) {
  constexpr std::string_view kStart = "[rank", kEnd = "]: ";
  if (!line.starts_with(kStart)) return line;
  const std::size_t end = line.find_first_not_of("0123456789", kStart.size());
  const bool is_rank = end != kStart.size() && end != std::string_view::npos && line.substr(end).starts_with(kEnd);
  return is_rank ? line.substr(end + kEnd.size()) : line;
}

}  // namespace

void OutputTail::add(std::string_view line) {
  const bool is_transient = line.ends_with('\r');
  while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
  std::string text(line.substr(0, kMaxLineBytes));
  if (line.size() > kMaxLineBytes) text += "...";
  scan_line(without_rank(text));
  if (is_transient_ && !lines_.empty()) lines_.pop_back();
  is_transient_ = is_transient;
  lines_.push_back(std::move(text));
  if (lines_.size() > kMaxLines) lines_.pop_front();
}

void OutputTail::scan_line(std::string_view line) {
  if (line == kHeadline) {
    in_traceback_ = true;
  } else if (in_traceback_) {
    if (line.empty() || line.front() == ' ') return;
    in_traceback_ = false;
    on_exception(std::string(line));
  } else if (line.starts_with(kTerminate)) {
    terminate_type_ = line.substr(kTerminate.size(), line.rfind('\'') - kTerminate.size());
    on_exception(terminate_type_);
  } else if (!terminate_type_.empty() && line.starts_with(kWhat)) {
    on_exception(terminate_type_ + ": " + std::string(line.substr(kWhat.size())));
    terminate_type_.clear();
  } else if (line == kStack || (in_stack_ && (line.empty() || line.front() == ' '))) {
    in_stack_ = true;
  } else if (in_stack_ = false; ++lines_since_ > kMaxLines) {
    exception_.clear();
    loss_.clear();
  }
}

void OutputTail::on_exception(std::string text) {
  lines_since_ = 0;
  in_stack_ = false;
  if (const std::string_view loss = loss_in(text); !loss.empty()) loss_ = loss;
  exception_ = std::move(text);
}

std::optional<int> rank_lost(std::string_view text, int by) {
  constexpr std::string_view kRank = "rank";
  for (std::size_t at = text.find(kRank); at != std::string_view::npos; at = text.find(kRank, at + 1)) {
    std::size_t digits = at + kRank.size();
    if (digits < text.size() && text[digits] == 's') ++digits;
    const bool is_word = at == 0 || std::isalnum(static_cast<unsigned char>(text[at - 1])) == 0;
    if (!is_word || digits >= text.size() || text[digits] != ' ') continue;
    int rank = -1;
    const auto [end, error] = std::from_chars(text.data() + digits + 1, text.data() + text.size(), rank);
    if (error == std::errc() && rank >= 0 && rank != by) return rank;
  }
  return std::nullopt;
}

}  // namespace horo::tools
