#include "horo/lane/device_results.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "horo/lane/job.h"

namespace horo {

DeviceResults::Place& DeviceResults::place_of(const CudaDevice& device) {
  return places_.try_emplace(device.number(), device).first->second;
}

bool DeviceResults::is_idle() const {
  return std::ranges::all_of(places_,
                             [](const auto& one) { return !one.second.last || one.second.last->is_complete(); });
}

void DeviceResults::free() noexcept {
  for (const auto& [number, place] : places_) {
    try {
      if (place.last) place.last->wait();
    } catch (const std::exception&) {  // the device has failed, or this process was forked
    }
  }
  places_.clear();
}

HeldMemory DeviceResults::take(std::size_t bytes, DeviceStream& stream) {
  Place& place = place_of(stream.device());
  const std::size_t size = rounded_bytes(bytes);
  const auto found = place.spare.find(size);
  if (found == place.spare.end()) return {place.memory.add(size), size};
  const Spare spare = std::move(found->second);
  place.spare.erase(found);
  if (spare.read) spare.read->hold_up(stream.device(), stream.handle());
  return {spare.data, size};
}

// A retired tensor may be submitted again at once: what is enqueued for it then follows on the callers' streams.
void DeviceResults::deliver(TensorTable& tensor_table, const ItemList& items, DeviceResult result) {
  std::shared_ptr<const DeviceEvent> there = result.done;
  if (result.held.data != nullptr) {
    const CudaDevice device = result.done->device();
    const OnDevice here(device);
    Place& place = place_of(device);
    place.stream.copy_rows(result.rows, result.is_here);
    place.last = there = std::make_shared<const DeviceEvent>(device, place.stream.handle());
    place.spare.emplace(result.held.bytes, Spare{result.held.data, there});
  }
  tensor_table.retire_issued(items);
  if (items->size() > 1) return Work::issue_all(*items, there);
  items->front().work->issue(std::move(result.outcome), there);
}

void DeviceResults::end_on_host(TensorTable& tensor_table, const ItemList& items, DeviceResult result) {
  const Item& item = items->front();
  Outcome& outcome = result.outcome;
  const bool is_wanted = item.submission.out == nullptr;
  const FailurePtr failure = is_wanted ? nullptr : invalid(too_small_text(item, outcome.bytes));
  if (is_wanted) {
    const CudaDevice device = result.done->device();
    const OnDevice here(device);
    outcome.data = std::make_unique_for_overwrite<std::byte[]>(outcome.bytes);
    DeviceStream& stream = place_of(device).stream;
    stream.copy_to_host(outcome.data.get(), result.from.data, outcome.bytes);
    stream.finish();
  }
  drop(result);
  tensor_table.retire(*items);
  is_wanted ? item.work->finish(std::move(outcome)) : item.work->fail(failure);
}

// What is enqueued on the stream of the next result follows what has written this one.
void DeviceResults::drop(const DeviceResult& result) {
  if (result.held.data == nullptr) return;
  place_of(result.done->device()).spare.emplace(result.held.bytes, Spare{result.held.data, nullptr});
}

}  // namespace horo
