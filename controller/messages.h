// The messages between coordinators. Up: a rank reports to the leader which tensors and plans became ready on it. Down:
// the leader sends to all ranks an ordered list of items, which every rank applies in order, rank 0 too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "controller/coordinator.h"

namespace horo {

using TensorId = std::uint32_t;  // number of a (name, spec) that was released, until forgotten; equal on all ranks

// The world-wide name of a tensor.
struct TensorName {
  std::uint32_t set = 0;
  std::uint32_t channel = 0;
  std::string name;
  bool operator==(const TensorName&) const = default;
  bool operator<(const TensorName& o) const {
    return std::tie(set, channel, name) < std::tie(o.set, o.channel, o.name);
  }
};
TensorName name_of(const TensorSpec& spec);

// ---- Up.

// The report of a tensor that has no id yet: all properties that must be equal on all ranks.
struct Request {
  TensorSpec spec;
  bool absent = false;
  bool lost = false;  // see Submitted; the spec has set, channel and name alone
};
// The report of a known plan of which these tensors (positions in the plan, ascending) are absent.
struct PartialPlan {
  PlanId plan = 0;
  std::vector<std::uint32_t> absent_slots;
};
// A tensor or join that a caller waits for.
struct Awaited {
  TensorName name;
  bool is_join = false;
  bool operator==(const Awaited&) const = default;
};
// The call sites of this rank's callers (at most kMaxAnswerBytes), and the waits of its callers, if all of them wait.
struct Diagnosis {
  std::uint64_t question = 0;
  std::string call_sites;
  std::chrono::milliseconds unchanged{};           // see CallerWaits
  std::vector<std::vector<Awaited>> threads = {};  // what each waits for and the leader has not released
};
struct UpMessage {
  // The number of Down messages that the sender had applied. With it the leader detects a report that was sent before
  // the sender applied the tensor's failure: it belongs to the failed instance, not to the next one.
  std::uint64_t applied = 0;
  std::uint64_t age_us = 0;  // how long the last tensor of this report had been ready when it was sent
  // Figures of the sender; empty: none. They do not make a message: empty() does not regard them.
  std::vector<std::byte> figures;
  std::uint64_t figures_age_us = 0;  // how long ago they were true when it was sent
  std::vector<PlanId> active;        // takes effect before all other fields
  std::vector<RoundBegun> rounds;    // of all reports from this message on; at most one per stream
  std::vector<Request> requests;
  std::vector<TensorId> present;
  std::vector<TensorId> absent;
  std::vector<PlanId> plans;
  std::vector<PartialPlan> partial_plans;
  std::vector<Diagnosis> answers;
  std::vector<std::uint32_t> ended;  // sets whose step ended; sent by the set's first member, if it is not rank 0
  std::vector<Done> done;
  std::vector<RoundFailed> failed_rounds;  // after the reports of this message

  // There is nothing to send. The begin of a round waits for the next report. An empty message has `applied` alone: the
  // sender has applied a ForgetTensors.
  bool empty() const {
    return !has_names() && !has_bits() && answers.empty() && ended.empty() && done.empty() && failed_rounds.empty();
  }
  bool has_names() const { return !requests.empty(); }
  bool has_bits() const {
    return !active.empty() || !present.empty() || !absent.empty() || !plans.empty() || !partial_plans.empty();
  }
};

// ---- Down.

// A tensor by name, by id, or by both: then this id is given to the name.
struct TensorRef {
  std::optional<TensorName> name;
  std::optional<TensorId> id;
};
// The rank that was ready last for a release, and how long before the message was sent (DownMessage::sent).
struct LastReady {
  int rank = -1;  // none is known
  std::uint64_t hold_us = 0;
};
// One bucket, to be reduced now. All its tensors are of one set.
struct ReleaseTensors {
  std::vector<TensorRef> tensors;
  std::vector<int> absent_ranks;
  std::vector<int> ranks = {};  // that take part; empty: all members of the set
  bool reports_done = false;    // the first of them reports Done to the leader
  LastReady last = {};
};
struct SkipTensors {
  std::vector<TensorRef> tensors;
  std::vector<int> ranks = {};  // as above
};
// A tensor of a known plan that is absent on some ranks. It is a separate bucket, after the others of the plan.
struct SlotAbsence {
  std::uint32_t slot = 0;
  std::vector<int> ranks;  // where it is absent; all members: the tensor is skipped
};
struct ReleasePlan {
  PlanId plan = 0;
  std::vector<SlotAbsence> exceptions;  // by ascending slot
  bool reports_done = false;            // as above
  LastReady last = {};
};
struct DefinePlan {
  PlanId plan = 0;  // from 1, in order of definition
  std::vector<TensorId> tensors;
};
struct DissolvePlan {
  PlanId plan = 0;
};
// Tensors that fail together; the text of each is its head followed by the common text.
struct FailTensors {
  struct Tensor {
    TensorName name;
    bool once = false;  // a rank of `missing` that has not submitted it fails it when it does
    std::string head;
    bool lost = false;  // see Submitted
  };
  std::vector<Tensor> tensors;
  std::string text;
  std::vector<int> missing;     // ranks that did not submit them in time: they write a warning to their log
  std::vector<int> ranks = {};  // on which they fail; empty: on all members of the set
};
// A process set exists from here on; the tensor is its add_process_set.
struct DefineSet {
  TensorRef tensor;
  std::uint32_t set = 0;  // from 1, in order of definition
  std::string name;
  std::vector<int> ranks;
  bool shrinks = false;     // in an elastic job it goes on when it has lost members
  bool by_members = false;  // its members alone have submitted the tensor, and will submit that of its removal
};
// A process set ends here, with everything that was reported in it; the tensor is its remove_process_set.
struct EndSet {
  TensorRef tensor;
  std::uint32_t set = 0;
};
// No member of the set counts as joined from here on: all had joined or, if there is a text, the join failed with it.
struct JoinOver {
  std::uint32_t set = 0;
  int last = 0;  // rank in the set of the member that joined last
  std::string text;
};
// Asks every rank for the call sites of its callers.
struct RequestDiagnosis {
  std::uint64_t question = 0;
};
// These ids mean nothing from here on, until they are given again (forgetting.h).
struct ForgetTensors {
  std::vector<TensorId> tensors;  // ascending
};
using DownItem = std::variant<ReleaseTensors, SkipTensors, ReleasePlan, DefinePlan, DissolvePlan, FailTensors,
                              RequestDiagnosis, DefineSet, EndSet, JoinOver, ForgetTensors>;
struct DownMessage {
  std::vector<DownItem> items;
  TimePoint sent = {};  // on the clock that all ranks have; TimePoint{}: they have several

  bool has_names() const;
  bool has_bits() const;
};

// Decoding throws ProtocolError for anything that encode() does not write under the limits of this configuration, and
// allocates at most a small multiple of the message's size or of max_tensors.
std::vector<std::byte> encode(UpMessage message);
std::vector<std::byte> encode(const DownMessage& message);
UpMessage decode_up(std::span<const std::byte> bytes, const CoordinatorConfig& config);
DownMessage decode_down(std::span<const std::byte> bytes, const CoordinatorConfig& config);

}  // namespace horo
