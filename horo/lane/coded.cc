#include "horo/lane/coded.h"

#include <vector>

#include "horo/base/log.h"
#include "horo/base/say.h"
#include "horo/base/wire.h"

namespace horo {

void Coded::run(const Job& job, const Participants& participants, const Collective& collective, const Codec& codec) {
  std::vector<CodedTensor> tensors;
  tensors.reserve(job.items->size());
  for (const Item& item : *job.items) {
    tensors.push_back({static_cast<const std::byte*>(item.submission.in), static_cast<std::byte*>(item.submission.out),
                       item.spec->elements(), hash64(item.spec->name), state_of(*item.spec, codec)});
  }
  const CodedReport report = run_coded(participants.group, collective, codec, tensors, scratch_);
  if (report.dropped == 0) return;
  log_warning(say(collective.what, ": codec '", codec.name(), "' discards ", report.dropped, " residuals of norm ",
                  report.norm, ": the participating ranks or the length of a tensor changed"));
}

// An unnamed tensor does not recur, so it has no residuals.
CodedState* Coded::state_of(const TensorSpec& spec, const Codec& codec) {
  if (!codec.stateful() || spec.once) return nullptr;
  return &states_[codec.name() + '\0' + spec.name];
}

}  // namespace horo
