#include "horo/lane/device_groups.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "horo/base/log.h"
#include "horo/base/say.h"
#include "ring/nccl/nccl_group.h"
#include "ring/nccl/nccl_library.h"

namespace horo {
namespace {

// The plan numbers of these exchanges, beside those of the collectives themselves.
constexpr std::uint64_t kSetupPlan = std::uint64_t{1} << 61;

// What a member tells the others of its device.
struct Offer {
  std::array<unsigned char, 16> uuid{};
  std::uint64_t host = 0;         // as NCCL sees it
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

std::vector<Offer> exchange_offers(Group& group, const Collective& like, const Offer& mine) {
  std::vector<Offer> all(static_cast<std::size_t>(group.size()));
  Collective c = exchange_of(like, 0);
  c.kind = CollectiveKind::kAllGather;
  c.counts.assign(all.size(), sizeof(Offer));
  c.in = buffer_of(&mine, sizeof(Offer));
  c.out = buffer_of(all.data(), all.size() * sizeof(Offer));
  group.run(c);
  return all;
}

NcclId share_id(Group& group, const Collective& like, const NcclApi& api) {
  NcclId id;
  if (group.rank() == 0 && api.get_unique_id(&id) != kNcclSuccess) {
    throw std::runtime_error(say("ncclGetUniqueId failed on the first rank: ", api.last_error(nullptr)));
  }
  Collective c = exchange_of(like, 1);
  c.kind = CollectiveKind::kBroadcast;
  c.counts = {sizeof(id)};
  c.in = c.out = buffer_of(&id, sizeof(id));
  group.run(c);
  return id;
}

Offer offer_of(const NcclLibrary& nccl, const CudaDevice& device) {
  Offer offer;
  device.check(device.api().identify(device.number(), offer.uuid.data()), "identifying the device");
  std::array<char, 299> why{};
  offer.has_kernels = device.api().load_kernels(why.data(), why.size()) == 0 ? 1 : 0;
  if (offer.has_kernels == 0) offer.why_no_kernels = why;
  offer.host = host_of_nccl();
  offer.may_share = may_share_a_gpu() ? 1 : 0;
  if (nccl.api) offer.nccl_version = nccl.version;
  nccl.why.copy(offer.why_not.data(), offer.why_not.size() - 1);
  return offer;
}

// Why the members cannot use NCCL; empty: they can.
std::string obstacle_in(const std::vector<Offer>& offers, const std::vector<int>& ranks) {
  for (std::size_t i = 0; i < offers.size(); ++i) {
    if (offers[i].nccl_version == 0) return say("rank ", ranks[i], ": ", offers[i].why_not.data());
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

}  // namespace

DeviceGroup* DeviceGroups::of(const Participants& participants, const Collective& like, const CudaDevice& device) {
  if (!is_decided_) decide(participants, like, device);
  is_decided_ = true;
  return group_.get();
}

void DeviceGroups::decide(const Participants& participants, const Collective& like, const CudaDevice& device) {
  const NcclLibrary nccl = load_nccl(config_);
  const std::vector<Offer> offers = exchange_offers(participants.group, like, offer_of(nccl, device));
  const std::string obstacle = obstacle_in(offers, participants.ranks);
  const bool is_told = participants.group.rank() == 0;
  if (!obstacle.empty()) {
    if (config_.gpu_backend == "nccl") throw std::invalid_argument("HORO_GPU_BACKEND=nccl: " + obstacle);
    if (is_told) log_warning("CUDA tensors are reduced by way of the hosts' memory, not by NCCL: " + obstacle);
    return;
  }
  const auto without = std::ranges::find_if(offers, [](const Offer& offer) { return offer.has_kernels == 0; });
  const bool has_kernels = without == offers.end();
  if (is_told) log_info(say("CUDA tensors are reduced by NCCL ", nccl_version_text(nccl.version)));
  if (is_told && !has_kernels) {
    const int rank = participants.ranks[static_cast<std::size_t>(without - offers.begin())];
    log_warning(say("canonical sums of CUDA tensors go by way of the hosts' memory: rank ", rank,
                    " has none of horo's kernels: ", without->why_no_kernels.data()));
  }
  const NcclId id = share_id(participants.group, like, *nccl.api);
  const NcclMembers members{participants.group.size(), participants.group.rank(), has_kernels, id};
  group_ = make_nccl_group(nccl.api, device, members, [this](Duration time) { stop_.pause(time); });
}

}  // namespace horo
