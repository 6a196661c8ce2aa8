#include "horo/lane/device_claim.h"

#include <map>

#include "horo/base/mutex.h"

namespace horo {
namespace {

struct Owner {
  std::string job;
  int claims = 0;
};

Mutex mutex;
std::map<int, Owner> owners GUARDED_BY(mutex);  // by device

bool take(const std::string& job, int device) {
  MutexLock lock(mutex);
  Owner& owner = owners.try_emplace(device, Owner{job}).first->second;
  if (owner.job != job) return false;
  ++owner.claims;
  return true;
}

}  // namespace

DeviceClaim::DeviceClaim(const std::string& job, int device) : device_(device), is_held_(take(job, device)) {}

DeviceClaim::~DeviceClaim() {
  if (!is_held_) return;
  MutexLock lock(mutex);
  const auto owner = owners.find(device_);
  if (--owner->second.claims == 0) owners.erase(owner);
}

}  // namespace horo
