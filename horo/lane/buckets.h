// Buckets: where tensors of one collective lie side by side. One is on the wire while another is packed ahead.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "horo/base/counters.h"
#include "horo/lane/job.h"
#include "ring/group.h"

namespace horo {

std::size_t bytes_of(const std::vector<Item>& items);

// Where the tensors lie if their memory is a bucket already: each is reduced in place, and begins where the one before
// it ends. Else null.
std::byte* side_by_side(const std::vector<Item>& items);

// The lane's thread alone. Group and counters outlive it.
class Buckets {
 public:
  Buckets(Group& group, Counters& counters) : group_(group), counters_(counters) {}

  // Packs a known plan that is not released yet, and does not lie side by side.
  void pack_ahead(const std::vector<Item>& items);
  // The tensors of the job in one buffer, until deliver(): their own memory where they lie side by side, else a copy.
  Buffer packed(const Job& job);
  // Copies the results out of the buffer that packed() gave last.
  void deliver(const std::vector<Item>& items);

 private:
  struct Bucket {
    Allocation memory;
    std::shared_ptr<Work> packed;  // first Work of the known plan that lies packed in it
  };

  Bucket& claim(std::size_t bytes);
  Bucket& bucket_of(const Job& job);
  void pack(Bucket& bucket, const std::vector<Item>& items);

  Group& group_;
  Counters& counters_;
  std::deque<Bucket> buckets_;
  Bucket* current_ = nullptr;  // of packed(), null: no copy; no bucket is claimed before its deliver()
};

}  // namespace horo
