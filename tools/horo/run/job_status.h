// JobStatus: what `horo status` shows of a job. The guard writes it as JSON, which docs/status.md describes.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "horo/steps/step_record.h"
#include "tools/horo/run/story.h"

namespace horo::tools {

inline constexpr int kStatusSchema = 1;

// What an elastic member has told of itself.
struct MemberFigures {
  std::uint64_t rounds = 0, collectives = 0, in_flight = 0;
  std::string oldest;      // the tensor in flight that was submitted first
  double age_s = 0;        // since the answer
  bool is_answer = false;  // to the present question
};

// Where the steps of a rank went: means over some of them, in nanoseconds.
struct StepFigures {
  std::int64_t steps = 0;                  // that its process has ended
  std::int64_t counted = 0;                // of them, those that the means are of
  std::int64_t step = 0;                   // the bars add up to it, but for a nanosecond each
  std::array<std::int64_t, kBars> bars{};  // docs/scaling.md
  std::uint32_t known = 0;                 // bits by Bar
  std::int64_t hidden_transfer = 0;
  std::optional<std::int64_t> waits = {};  // of the other ranks of this host for this one, in a step, all together
  std::optional<double> samples_per_s = {};
  double age_s = 0;  // since the last step has ended
};

struct MemberStatus {
  int id = 0;               // the rank at the start, or a later number for a rank that was started later
  std::optional<int> rank;  // at present; none: it is out
  pid_t pid = 0;            // 0: on another host
  std::string state;        // a word; see docs/status.md
  std::string text;         // how it ended
  std::optional<MemberFigures> figures = {};
  std::optional<StepFigures> steps = {};  // of a rank of this host
};

struct JobStatus {
  pid_t job = 0;      // the guard's process
  pid_t process = 0;  // of `horo run`
  std::string title;  // "horo run"
  std::vector<std::string> command;
  double started_s = 0, age_s = 0;  // since 1970; since the start
  int ranks = 0, size = 0;          // at the start, on this host and on all hosts
  std::optional<int> min_ranks;     // of an elastic job
  int slots = 0;                    // of an elastic job: places for ranks, which `horo resize` adds
  std::uint32_t epoch = 0;
  bool is_parked = false;
  std::vector<MemberStatus> members;
  std::optional<std::uint64_t> checkpoint =
      {};            // the step of the newest one that the ranks of this host have published
  std::string late;  // which rank the others wait for, as a sentence; empty: none
  std::vector<StoryLine> story;
  std::uint64_t dropped = 0;  // lines of the story
};

// Of a valid length for any job: texts are cut, and control characters are escaped.
std::string to_json(const JobStatus& status);
// Throws std::runtime_error for another schema, or what to_json() does not write.
JobStatus status_from_json(const std::string& json);

}  // namespace horo::tools
