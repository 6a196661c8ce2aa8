// Submission: the memory of one tensor that a caller has ready.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "controller/coordinator.h"

namespace horo {

class DeviceEvent;

// in and out are equal, or disjoint:
//
//   kind            in                                      out
//   all_reduce      the tensor                              as in
//   reduce          the tensor                              root: as in; others: not written, may be null
//   reduce_scatter  the tensor                              rows of this rank
//   broadcast       root: the tensor; others: not read      as in
//   all_gather      the tensor                              null, or room for all rows
//   gather          the tensor                              root: null, or room for all rows; others: not written
//   all_to_all      rows for each member, in their order    null, or room for all rows
//   scatter         root: rows for each member              null, or room for the rows of this rank
//   send_recv       root: the tensor; peer: not read        peer: as in; root: not written
//   barrier         null                                    null
//
// Where out may be null, the ranks exchange the size of the result. With a null out the Work owns the result
// (Outcome::data, or, of a tensor on a device, with kOutOnDevice as out_bytes, Outcome::on_device where the ranks'
// devices exchange data themselves). With an out the Work fails if out_bytes is less than the size of the result.
inline constexpr std::size_t kOutOnDevice = SIZE_MAX;

struct Submission {
  Key key = 0;
  const void* in = nullptr;
  void* out = nullptr;
  bool absent = false;  // all_reduce: this rank has no value, in is not read
  std::size_t out_bytes = 0;
  std::vector<std::int64_t> splits = {};  // all_to_all, scatter at the root: rows for each member; empty: evenly
  // Of a tensor on a device: passes when `in` has its values and `out` may be written. Null: on the host.
  std::shared_ptr<const DeviceEvent> ready = {};

  // The Work may own the result in memory of a device.
  bool may_own_on_device() const { return ready && out == nullptr && out_bytes == kOutOnDevice; }
};

}  // namespace horo
