#include "horo/lane/device_groups.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "horo/base/check.h"
#include "horo/base/log.h"
#include "horo/base/say.h"
#include "horo/base/wire.h"
#include "ring/cuda/device_memory.h"
#include "ring/nccl/nccl_group.h"
#include "ring/nccl/nccl_library.h"

namespace horo {
namespace {

// The plan numbers of these exchanges, beside those of the collectives themselves.
constexpr std::uint64_t kSetupPlan = std::uint64_t{1} << 61;

// After so many errors of its network NCCL is not tried again. Each of them has cost an elastic job an epoch.
constexpr std::uint64_t kMostErrors = 3;
// NCCL may take this many deadlines to connect: with many ranks it needs minutes.
constexpr int kConnectDeadlines = 4;
constexpr std::chrono::microseconds kIdleLook{200};  // the pause between two looks at a stream

// What a member tells the others of its device.
struct Offer {
  std::array<unsigned char, 16> uuid{};
  std::uint64_t host = 0;         // as NCCL sees it
  std::uint64_t errors = 0;       // of NCCL in this job so far
  std::int32_t nccl_version = 0;  // 0: it cannot use NCCL, why_not has the reason
  std::uint8_t has_kernels = 0;
  std::uint8_t may_share = 0;  // its NCCL takes several ranks of a GPU
  std::array<char, 299> why_not{}, why_no_kernels{};
};

// NCCL takes ranks with different NCCL_HOSTID for ranks of different hosts, and lets them share a GPU then; since 2.30
// also with NCCL_MULTI_RANK_GPU_ENABLE.
std::uint64_t host_of_nccl() {
  const char* const id = std::getenv("NCCL_HOSTID");
  return id == nullptr ? 0 : hash64(id);
}
bool may_share_a_gpu() {
  const char* const enabled = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return enabled != nullptr && std::string_view(enabled) == "1";
}

// A collective of bytes over the host's group, as a part of the setup.
Collective exchange_of(const Collective& like, std::uint64_t part) {
  Collective c;
  c.dtype = DType::kUint8;
  c.contributors = like.contributors;
  c.channel = like.channel;
  c.plan = (like.plan + part) | kSetupPlan;
  c.key_hash = like.key_hash;
  c.deadline = like.deadline;
  c.what = "the choice of a backend for " + like.what;
  return c;
}

// What all members have, by member.
template <class One>
std::vector<One> exchange(Group& group, const Collective& like, std::uint64_t part, const One& mine) {
  std::vector<One> all(static_cast<std::size_t>(group.size()));
  Collective c = exchange_of(like, part);
  c.kind = CollectiveKind::kAllGather;
  c.counts.assign(all.size(), sizeof(One));
  c.in = buffer_of(&mine, sizeof(One));
  c.out = buffer_of(all.data(), all.size() * sizeof(One));
  group.run(c);
  return all;
}

// A reason, as members tell it to each other; empty: none.
using Reason = std::array<char, 299>;

Reason reason_of(std::string_view text) {
  Reason reason{};
  text.copy(reason.data(), reason.size() - 1);
  return reason;
}

struct SharedId {
  NcclId id;
  Reason why_not{};
};

SharedId share_id(Group& group, const Collective& like, const NcclApi& api) {
  SharedId shared;
  if (group.rank() == 0 && api.get_unique_id(&shared.id) != kNcclSuccess) {
    shared.why_not = reason_of(say("ncclGetUniqueId: ", api.last_error(nullptr)));
  }
  Collective c = exchange_of(like, 1);
  c.kind = CollectiveKind::kBroadcast;
  c.counts = {sizeof(shared)};
  c.in = c.out = buffer_of(&shared, sizeof(shared));
  group.run(c);
  return shared;
}

// Takes memory for the first collective. Why the device has none: the other members would wait for this one there.
std::string lack_of_memory(DeviceScratch& first) {
  try {
    first.at_least(1);
    return "";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

// Why no group of several members may use NCCL here; empty: it may.
std::string lack_of_right(const DeviceClaim& claim, const CudaDevice& device) {
  if (claim.is_held()) return "";
  return say("another session of this process has NCCL on ", device.name(),
             ", in an order of collectives of its own, which may differ between ranks: make one group of all ranks "
             "first, and the others of its members");
}

Offer offer_of(const NcclLibrary& nccl, const CudaDevice& device, const Counters& counters, DeviceScratch& first) {
  Offer offer;
  offer.errors = counters.nccl_errors();
  device.check(device.api().identify(device.number(), offer.uuid.data()), "identifying the device");
  std::array<char, 299> why{};
  offer.has_kernels = device.api().load_kernels(why.data(), why.size()) == 0 ? 1 : 0;
  if (offer.has_kernels == 0) offer.why_no_kernels = why;
  offer.host = host_of_nccl();
  offer.may_share = may_share_a_gpu() ? 1 : 0;
  if (nccl.api) offer.nccl_version = nccl.version;
  nccl.why.copy(offer.why_not.data(), offer.why_not.size() - 1);
  if (offer.nccl_version == 0) return offer;
  if (const std::string lack = lack_of_memory(first); !lack.empty()) {
    offer.nccl_version = 0;
    offer.why_not = reason_of(lack);
  }
  return offer;
}

// Why the members cannot use NCCL; empty: they can.
std::string obstacle_in(const std::vector<Offer>& offers, const std::vector<int>& ranks) {
  for (std::size_t i = 0; i < offers.size(); ++i) {
    if (offers[i].nccl_version == 0) return say("rank ", ranks[i], ": ", offers[i].why_not.data());
    if (offers[i].errors >= kMostErrors)
      return say("rank ", ranks[i], ": NCCL has failed ", offers[i].errors, " times");
    for (std::size_t j = 0; j < i; ++j) {
      if (offers[i].uuid != offers[j].uuid || offers[i].host != offers[j].host ||
          (offers[i].may_share & offers[j].may_share) != 0)
        continue;
      return say("ranks ", ranks[j], " and ", ranks[i], " use one GPU, which NCCL refuses: give each rank its own, as ",
                 "torch.cuda.set_device(horo.local_rank()) does");
    }
  }
  return "";
}

// The member with the cause: those that could not connect make the others wait. The size of `reasons`: there is none.
std::size_t first_failure(const std::vector<Reason>& reasons) {
  const auto has_failed = [](const Reason& reason) { return reason[0] != '\0'; };
  const auto is_cause = [&](const Reason& reason) {
    return has_failed(reason) && std::string_view(reason.data()).find("HORO_DEADLINE_MS") == std::string::npos;
  };
  const auto cause = std::ranges::find_if(reasons, is_cause);
  const auto found = cause != reasons.end() ? cause : std::ranges::find_if(reasons, has_failed);
  return static_cast<std::size_t>(found - reasons.begin());
}

// What connects the members of a set.
struct Setup {
  const Participants& participants;
  const Collective& like;
  DeviceStream& stream;
  const NcclLibrary& nccl;
  bool has_kernels;  // of all members
  std::chrono::milliseconds time;
  Pause pause;
  DeviceScratch& first;
};

// Returns why the members cannot connect, the same on all of them. A member that has no connection in time gives up
// alone, so all of them tell the others how it went. Throws what the pause throws.
std::string connect(const Setup& setup, std::unique_ptr<DeviceGroup>& made) {
  Group& group = setup.participants.group;
  const std::vector<int>& ranks = setup.participants.ranks;
  const SharedId shared = share_id(group, setup.like, *setup.nccl.api);
  if (shared.why_not[0] != '\0') return say("rank ", ranks.front(), ": ", shared.why_not.data());
  Reason why_not{};
  try {
    const NcclMembers members{group.size(), group.rank(), setup.has_kernels, shared.id, setup.time};
    made = make_nccl_group(setup.nccl.api, setup.stream, members, setup.pause, setup.first);
  } catch (const ShutDown&) {
    throw;
  } catch (const std::runtime_error& error) {
    why_not = reason_of(say(setup.stream.device().name(), ": ", error.what()));
  }
  Collective like = setup.like;  // all have begun to connect, so all come here in time, if NCCL lets them
  like.deadline = Clock::now() + 2 * setup.time;
  const std::vector<Reason> reasons = exchange(group, like, 2, why_not);
  const std::size_t failed = first_failure(reasons);
  if (failed == reasons.size()) return "";
  made.reset();
  return say("rank ", ranks[failed], ": ", reasons[failed].data());
}

}  // namespace

DeviceGroup* DeviceGroups::of(const Participants& participants, const Collective& like, DeviceStream& stream) {
  if (!is_decided_) decide(participants, like, stream);
  is_decided_ = true;
  return group_.get();
}

// What the callers' streams hold up takes any time, which is not NCCL's to connect.
void DeviceGroups::decide(const Participants& participants, const Collective& like, DeviceStream& stream) {
  const DeviceEvent before(stream.device(), stream.handle());
  while (!before.is_complete()) {
    watch_();
    stop_.pause(kIdleLook);
  }
  const NcclLibrary nccl = load_nccl(config_);
  HORO_CHECK(!group_);  // it refers to first_
  first_ = std::make_unique<DeviceScratch>(stream.device(), "sums by NCCL (HORO_GPU_BACKEND=host needs none)");
  Offer offer = offer_of(nccl, stream.device(), counters_, *first_);
  if (participants.group.size() > 1) {
    claim_ = std::make_unique<DeviceClaim>(config_.job + " at " + config_.addr, stream.device().number());
    if (const std::string lack = lack_of_right(*claim_, stream.device()); !lack.empty() && offer.nccl_version != 0) {
      offer.nccl_version = 0;
      offer.why_not = reason_of(lack);
    }
  }
  const std::vector<Offer> offers = exchange(participants.group, like, 0, offer);
  const auto without = std::ranges::find_if(offers, [](const Offer& offer) { return offer.has_kernels == 0; });
  const bool has_kernels = without == offers.end();
  std::string obstacle = obstacle_in(offers, participants.ranks);
  if (obstacle.empty()) {
    const auto pause = [this](Duration time) { stop_.pause(time); };
    obstacle = connect(
        {participants, like, stream, nccl, has_kernels, kConnectDeadlines * config_.deadline, pause, *first_}, group_);
  }
  if (!group_) claim_.reset();
  if (!obstacle.empty() && config_.gpu_backend == "nccl") {
    throw std::invalid_argument("HORO_GPU_BACKEND=nccl: " + obstacle);
  }
  if (participants.group.rank() > 0) return;
  const std::string what = like.kind != CollectiveKind::kSendRecv
                               ? "CUDA tensors are reduced"
                               : say("messages of CUDA tensors between ranks ", participants.ranks.front(), " and ",
                                     participants.ranks.back(), " go");
  if (!obstacle.empty()) return log_warning(what + " by way of the hosts' memory, not by NCCL: " + obstacle);
  log_info(say(what, " by NCCL ", nccl_version_text(nccl.version)));
  if (has_kernels || like.kind == CollectiveKind::kSendRecv) return;
  const int rank = participants.ranks[static_cast<std::size_t>(without - offers.begin())];
  log_warning(say("canonical sums of CUDA tensors go by way of the hosts' memory: rank ", rank,
                  " has none of horo's kernels: ", without->why_no_kernels.data()));
}

}  // namespace horo
