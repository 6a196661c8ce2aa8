#include "horo/base/timeline_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <climits>
#include <cstring>
#include <fstream>
#include <map>
#include <stdexcept>

#include "horo/base/forked.h"
#include "horo/base/json_text.h"
#include "horo/base/output_file.h"
#include "horo/base/say.h"

namespace horo {
namespace {

constexpr std::uint64_t kStepsTrack = 1, kLanesTrack = 10;
constexpr std::size_t kMostWaits = 10'000;
constexpr std::array<std::string_view, kPhases> kPhaseNames{"pack", "transfer", "unpack", "deliver"};

void append(std::string& text, std::uint64_t number) {
  std::array<char, 20> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  text.append(digits.data(), end);
}

// Microseconds with three decimals.
void append_micros(std::string& text, Duration duration) {
  const auto nanos = static_cast<std::uint64_t>(
      std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count()));
  append(text, nanos / 1'000);
  const auto rest = static_cast<unsigned>(nanos % 1'000);
  text += '.';
  for (const unsigned digit : {rest / 100, rest / 10 % 10, rest % 10}) text += static_cast<char>('0' + digit);
}

std::string micros(Duration duration) {
  std::string text;
  append_micros(text, duration);
  return text;
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

// Equal for processes whose monotonic clock is the same: those of one kernel and time namespace. Empty: not known.
std::string clock_name() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  std::array<char, 64> space{};
  const ssize_t length = ::readlink("/proc/self/ns/time", space.data(), space.size());
  if (boot.empty()) return "";
  return boot + " " + std::string(space.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
}

int open_alone(const std::string& path) {
  try {
    return open_output_alone(path, "another timeline is being written to it");
  } catch (const std::exception& error) {
    throw std::invalid_argument(say("timeline: cannot write ", path, ": ", error.what()));
  }
}

std::string number_of(const TimelineJob& job) {
  std::string text = "\"number\":";
  append(text, job.number);
  text += ",\"epoch\":";
  append(text, job.epoch);
  return text;
}

std::string title_of(const TimelineJob& job) {
  std::string title(name_of(job.kind));
  if (!job.tensors.empty()) title += " " + job.tensors.front().name;
  if (job.tensors.size() > 1) title += " and " + std::to_string(job.tensors.size() - 1) + " more";
  return title;
}

}  // namespace

TimelineFile::TimelineFile(const std::string& path, int rank, int size, TimePoint now)
    : path_(path), rank_(rank), step_begin_(now) {
  file_ = open_alone(path);
  own_descriptor(file_);
  const auto wall = std::chrono::system_clock::now().time_since_epoch() - now.time_since_epoch();
  text_ = "[";
  add(say(R"({"name":"horo_timeline","ph":"M","pid":)", rank, R"(,"args":{"rank":)", rank, R"(,"size":)", size,
          R"(,"host":)", json_quoted(host_name()), R"(,"clock":)", json_quoted(clock_name()),
          R"(,"unix_minus_monotonic_us":)", std::chrono::duration_cast<std::chrono::microseconds>(wall).count(), "}}"));
  add(say(R"({"name":"process_name","ph":"M","pid":)", rank, R"(,"args":{"name":"rank )", rank, "\"}}"));
  add(say(R"({"name":"process_sort_index","ph":"M","pid":)", rank, R"(,"args":{"sort_index":)", rank, "}}"));
  name_track(kStepsTrack, "steps", 0);
}

TimelineFile::~TimelineFile() {
  if (give_up_descriptor(file_)) ::close(file_);
}

void TimelineFile::name_track(std::uint64_t track, const std::string& name, int order) {
  if (!named_.insert(track).second) return;
  const std::string place = say(R"("ph":"M","pid":)", rank_, R"(,"tid":)", track);
  add(say(R"({"name":"thread_name",)", place, R"(,"args":{"name":)", json_quoted(name), "}}"));
  add(say(R"({"name":"thread_sort_index",)", place, R"(,"args":{"sort_index":)", order, "}}"));
}

// Begins an event on a line of its own.
void TimelineFile::begin_event() {
  text_ += text_.size() == 1 && is_first_ ? "\n" : ",\n";
  is_first_ = false;
}

void TimelineFile::add(const std::string& event) {
  begin_event();
  text_ += event;
}

void TimelineFile::span(std::uint64_t track, std::string_view name, Span at, const std::string& arguments) {
  begin_event();
  text_ += "{\"name\":";
  text_ += json_quoted(name);
  text_ += ",\"ph\":\"X\",\"pid\":";
  append(text_, static_cast<std::uint64_t>(rank_));
  text_ += ",\"tid\":";
  append(text_, track);
  text_ += ",\"ts\":";
  append_micros(text_, at.begin.time_since_epoch());
  text_ += ",\"dur\":";
  append_micros(text_, at.end - at.begin);
  end_event(arguments);
}

void TimelineFile::end_event(const std::string& arguments) {
  if (!arguments.empty()) {
    text_ += ",\"args\":{";
    text_ += arguments;
    text_ += "}";
  }
  text_ += "}";
}

void TimelineFile::write(const TimelineJob& job) {
  const bool is_mail = job.lane == kTimelineMessages;
  const std::uint64_t track = kLanesTrack + (is_mail ? 0 : std::uint64_t{1} + job.lane);
  name_track(track,
             is_mail         ? "messages"
             : job.lane == 0 ? "collectives of the world"
                             : say("collectives of process set ", job.lane),
             static_cast<int>(std::min<std::uint64_t>(track, INT_MAX)));
  const auto last = std::ranges::max_element(job.tensors, {}, &TimelineJob::Tensor::submitted);
  const TimePoint latest = last == job.tensors.end() ? job.released : last->submitted;
  std::string arguments = number_of(job) + ",\"set\":";
  arguments += is_mail ? "-1" : std::to_string(job.lane);
  arguments += ",\"tensors\":";
  append(arguments, job.tensors.size());
  arguments += ",\"bytes\":";
  append(arguments, job.bytes);
  if (!job.algorithm.empty()) {
    arguments += say(R"(,"algorithm":)", json_quoted(job.algorithm), R"(,"bytes_sent":)", job.traffic.bytes_sent,
                     R"(,"bytes_received":)", job.traffic.bytes_received);
  }
  arguments += ",\"ready\":";
  append_micros(arguments, latest.time_since_epoch());
  arguments += ",\"released\":";
  append_micros(arguments, job.released.time_since_epoch());
  span(track, title_of(job), {job.begun, job.ends.back()}, arguments);
  TimePoint begin = job.begun;
  for (std::size_t i = 0; i < kPhases; ++i) {
    if (job.ends[i] > begin) span(track, kPhaseNames[i], {begin, job.ends[i]});
    begin = std::max(begin, job.ends[i]);
  }
  if (last != job.tensors.end()) write_tensors(job, *last);
}

// The tensors of a job end together, so the parts of its way are written once, with its last tensor. agree: until all
// ranks have agreed; queue: until the lane runs it.
void TimelineFile::write_tensors(const TimelineJob& job, const TimelineJob::Tensor& last) {
  const std::string number = number_of(job);
  for (const auto& tensor : job.tensors) {
    tensor_event('b', tensor.name, tensor.submitted, number);
    if (&tensor == &last) {
      const std::array<std::pair<std::string_view, Span>, 3> parts{{{"agree", {tensor.submitted, job.released}},
                                                                    {"queue", {job.released, job.begun}},
                                                                    {name_of(job.kind), {job.begun, job.ends.back()}}}};
      for (const auto& [name, at] : parts) {
        if (at.end <= at.begin) continue;
        tensor_event('b', name, at.begin, "");
        tensor_event('e', name, at.end, "");
      }
    }
    tensor_event('e', tensor.name, job.ends.back(), "");
    ++tensors_;
  }
}

void TimelineFile::tensor_event(char phase, std::string_view name, TimePoint at, const std::string& arguments) {
  begin_event();
  text_ += "{\"name\":";
  text_ += json_quoted(name);
  text_ += ",\"cat\":\"tensor\",\"ph\":\"";
  text_ += phase;
  text_ += "\",\"id\":\"";
  append(text_, static_cast<std::uint64_t>(rank_));
  text_ += '.';
  append(text_, tensors_);
  text_ += "\",\"pid\":";
  append(text_, static_cast<std::uint64_t>(rank_));
  text_ += ",\"tid\":";
  append(text_, kLanesTrack);
  text_ += ",\"ts\":";
  append_micros(text_, at.time_since_epoch());
  end_event(arguments);
}

// Waits of several threads may overlap.
void TimelineFile::write_wait(TimePoint begin, TimePoint end) {
  Span merged{begin, end};
  auto first = std::find_if(waits_.begin(), waits_.end(), [&](const Span& span) { return span.end >= begin; });
  auto last = first;
  for (; last != waits_.end() && last->begin <= end; ++last) {
    merged = {std::min(merged.begin, last->begin), std::max(merged.end, last->end)};
  }
  first = waits_.erase(first, last);
  waits_.insert(first, merged);
  if (waits_.size() < kMostWaits) return;
  for (const Span& wait : waits_) span(kStepsTrack, "wait", wait);  // a caller that ends no steps
  step_begin_ = waits_.back().end;
  waits_.clear();
}

// The step consists of the waits for horo, and of everything else: the two sum up to it. What is before the first end
// of a step is no whole step.
void TimelineFile::write_step(TimePoint end) {
  end = std::max(end, step_begin_);  // several threads may end steps
  Duration waited{};
  std::vector<std::pair<std::string_view, Span>> parts;
  TimePoint at = step_begin_;
  for (Span wait : waits_) {
    wait = {std::clamp(wait.begin, at, end), std::clamp(wait.end, at, end)};
    if (wait.end <= wait.begin) continue;
    if (wait.begin > at) parts.emplace_back("compute", Span{at, wait.begin});
    parts.emplace_back("wait", wait);
    waited += wait.end - wait.begin;
    at = wait.end;
  }
  if (end > at) parts.emplace_back("compute", Span{at, end});
  const std::string sums =
      say(R"("wait_us":)", micros(waited), R"(,"compute_us":)", micros(end - step_begin_ - waited));
  if (steps_ == 0) {
    span(kStepsTrack, "before the first step", {step_begin_, end});
  } else {
    span(kStepsTrack, say("step ", steps_), {step_begin_, end}, sums);
  }
  ++steps_;
  for (const auto& [name, part] : parts) span(kStepsTrack, name, part);
  std::erase_if(waits_, [&](const Span& wait) { return wait.end <= end; });
  step_begin_ = end;
}

// What is before the first step is no whole step.
void TimelineFile::write(const TimelineStep& step) {
  if (steps_ == 0) write_step(step.begin);
  const Span whole{std::max(step.begin, step_begin_), std::max(step.end, step_begin_)};
  std::map<std::string_view, Duration> sums;
  Duration waited{};
  std::vector<std::pair<std::string_view, Span>> parts;
  for (const TimelineStep::Bar& part : step.parts) {
    const Span at{std::clamp(part.begin, whole.begin, whole.end), std::clamp(part.end, whole.begin, whole.end)};
    if (at.end <= at.begin) continue;
    sums[part.name] += at.end - at.begin;
    if (part.waits) waited += at.end - at.begin;
    parts.emplace_back(part.name, at);
  }
  std::string arguments =
      say(R"("wait_us":)", micros(waited), R"(,"compute_us":)", micros(whole.end - whole.begin - waited));
  for (const auto& [name, sum] : sums) arguments += say(",\"", name, R"(_us":)", micros(sum));
  span(kStepsTrack, say("step ", steps_), whole, arguments);
  ++steps_;
  for (const auto& [name, at] : parts) span(kStepsTrack, name, at);
  step_begin_ = whole.end;
}

void TimelineFile::write_mark(TimePoint at, const std::string& text) {
  add(say(R"({"name":)", json_quoted(text), R"(,"ph":"i","s":"p","pid":)", rank_, R"(,"tid":)", kStepsTrack,
          R"(,"ts":)", micros(at.time_since_epoch()), "}"));
}

void TimelineFile::write_dropped(std::uint64_t count, TimePoint now) {
  add(say(R"({"name":"dropped","ph":"i","s":"p","pid":)", rank_, R"(,"tid":)", kStepsTrack, R"(,"ts":)",
          micros(now.time_since_epoch()), R"(,"args":{"records":)", count, "}}"));
}

void TimelineFile::flush() {
  for (std::string_view rest = text_; !rest.empty() && error_ == 0;) {
    const ssize_t written = ::write(file_, rest.data(), rest.size());
    if (written >= 0) {
      rest.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
  text_.clear();
}

void TimelineFile::close() {
  for (const Span& wait : waits_) span(kStepsTrack, "wait", wait);
  text_ += "\n]\n";
  flush();
  if (give_up_descriptor(file_) && ::close(file_) != 0 && error_ == 0) error_ = errno;
  file_ = -1;
  if (error_ != 0) throw std::runtime_error(say("timeline: ", path_, " is not complete: ", std::strerror(error_)));
}

}  // namespace horo
