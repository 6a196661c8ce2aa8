// How messages refer to tensors: by name, or by number. The counters of the control plane show it: in the steady state
// no message has names.
#include <algorithm>

#include "controller/messages.h"

namespace horo {
namespace {

bool any_ref(const std::vector<TensorRef>& refs, bool by_name) {
  return std::any_of(refs.begin(), refs.end(), [&](const TensorRef& ref) { return ref.name.has_value() == by_name; });
}

// True if the item refers to tensors by name (if by_name) or to tensors or plans by number (if not).
bool refers(const DownItem& item, bool by_name) {
  if (const auto* release = std::get_if<ReleaseTensors>(&item)) return any_ref(release->tensors, by_name);
  if (const auto* skip = std::get_if<SkipTensors>(&item)) return any_ref(skip->tensors, by_name);
  if (std::holds_alternative<RequestDiagnosis>(item)) return false;
  const bool of_plan = std::holds_alternative<ReleasePlan>(item) || std::holds_alternative<DefinePlan>(item) ||
                       std::holds_alternative<DissolvePlan>(item) || std::holds_alternative<ForgetTensors>(item);
  return of_plan != by_name;
}

}  // namespace

TensorName name_of(const TensorSpec& spec) {
  return {spec.set, spec.channel, spec.name};
}

bool DownMessage::has_names() const {
  return std::any_of(items.begin(), items.end(), [](const DownItem& item) { return refers(item, true); });
}
bool DownMessage::has_bits() const {
  return std::any_of(items.begin(), items.end(), [](const DownItem& item) { return refers(item, false); });
}

}  // namespace horo
