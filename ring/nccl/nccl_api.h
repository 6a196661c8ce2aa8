// The functions of NCCL that horo calls, as NCCL 2.27.3 and later export them. The declarations are horo's own: NCCL is
// loaded at run time, and none of its headers is needed. Values are those of NCCL's enumerations.
#pragma once

#include <array>
#include <climits>
#include <cstddef>

#include "ring/cuda/cuda_api.h"

namespace horo {

using NcclComm = void*;

struct NcclId {
  std::array<char, 128> bytes{};
};

// ncclConfig_t of NCCL 2.18.3; later versions read no further than `size`. What is not set has NCCL's default.
struct NcclConfig {
  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21803;
  int is_blocking = INT_MIN;
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};
static_assert(sizeof(NcclConfig) == 48);

inline constexpr int kNcclSuccess = 0;
inline constexpr int kNcclSystemError = 2;
inline constexpr int kNcclInternalError = 3;
inline constexpr int kNcclRemoteError = 6;
inline constexpr int kNcclInProgress = 7;

enum class NcclType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBFloat16 = 9,
};

enum class NcclOp : int { kSum = 0, kProduct = 1, kMax = 2, kMin = 3, kAverage = 4 };

// All return a result of NCCL. The functions of a communicator are called by one thread at a time, with its device as
// the current one.
struct NcclApi {
  int (*get_version)(int* version) = nullptr;  // 22907 is 2.29.7
  int (*get_unique_id)(NcclId* id) = nullptr;
  int (*comm_init)(NcclComm* comm, int size, NcclId id, int rank, NcclConfig* config) = nullptr;
  int (*comm_finalize)(NcclComm comm) = nullptr;  // sends what is left to send
  int (*comm_abort)(NcclComm comm) = nullptr;
  int (*comm_error)(NcclComm comm, int* result) = nullptr;  // kNcclInProgress: of a call that has not ended
  const char* (*error_text)(int result) = nullptr;
  const char* (*last_error)(NcclComm comm) = nullptr;  // more words, or none; null: of this thread
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*all_reduce)(const void* in, void* out, std::size_t count, NcclType type, NcclOp op, NcclComm comm,
                    CudaStream stream) = nullptr;
  int (*reduce)(const void* in, void* out, std::size_t count, NcclType type, NcclOp op, int root, NcclComm comm,
                CudaStream stream) = nullptr;
  int (*reduce_scatter)(const void* in, void* out, std::size_t out_count, NcclType type, NcclOp op, NcclComm comm,
                        CudaStream stream) = nullptr;
  int (*all_gather)(const void* in, void* out, std::size_t in_count, NcclType type, NcclComm comm,
                    CudaStream stream) = nullptr;
  int (*broadcast)(const void* in, void* out, std::size_t count, NcclType type, int root, NcclComm comm,
                   CudaStream stream) = nullptr;
  int (*send)(const void* in, std::size_t count, NcclType type, int peer, NcclComm comm, CudaStream stream) = nullptr;
  int (*receive)(void* out, std::size_t count, NcclType type, int peer, NcclComm comm, CudaStream stream) = nullptr;
};

}  // namespace horo
