// libhoro_mpi.so: MpiApi over Open MPI. The only file of horo that includes the header of MPI; of libhoro it includes
// the table alone.
//
// The end of the process. MPI_Finalize waits for all ranks, also for dead ones. MPI deletes the attributes of
// MPI_COMM_SELF at the beginning of MPI_Finalize, so the delete function of an attribute runs in time; handlers of
// on_exit() get the exit status. After give_up() both end the process at once.

#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

#include "ring/mpi/mpi_api.h"

static_assert(sizeof(MPI_Comm) == sizeof(void*) && sizeof(MPI_Request) == sizeof(void*), "expected Open MPI's header");
static_assert(static_cast<int>(horo::MpiThreads::kMultiple) == MPI_THREAD_MULTIPLE);

namespace horo {
namespace {

constexpr int kTag = 0x686f;  // of all messages of the communicator
constexpr int kLostStatus = 1;

struct Process {
  std::mutex mutex;  // because MPI may support MPI_THREAD_SERIALIZED alone
  pid_t pid = 0;
  bool is_ours = false;  // MPI was initialized here
  std::string why;       // the reason of give_up(); "": it was not called
};

// Never destroyed, because handlers of exit() run after destructors.
Process& process() {
  static Process* const one = new Process;
  return *one;
}

bool is_ended() {
  int ended = 0;
  return MPI_Finalized(&ended) != MPI_SUCCESS || ended != 0;
}

// False in a forked child, which has copies of the handlers and no MPI.
bool is_here() {
  return process().pid == ::getpid();
}

[[noreturn]] void leave_at_once(int status) {
  std::fflush(nullptr);
  std::fprintf(stderr,
               "horo: this process (pid %d) ends without MPI_Finalize, which would wait for ranks that are "
               "lost: %s\n",
               static_cast<int>(::getpid()), process().why.c_str());
  ::_exit(status);
}

int on_finalize(MPI_Comm, int, void*, void*) {
  if (is_here() && !process().why.empty()) leave_at_once(kLostStatus);
  return MPI_SUCCESS;
}

// With a status other than 0 this rank has failed, and must not wait for the others.
void on_exit_of_process(int status, void*) {
  if (!is_here() || is_ended()) return;
  if (!process().why.empty()) leave_at_once(status);
  if (process().is_ours && status == 0) MPI_Finalize();
}

int watch_end() {
  process().pid = ::getpid();
  int key = MPI_KEYVAL_INVALID;
  if (const int error = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize, &key, nullptr)) return error;
  if (const int error = MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr)) return error;
  return ::on_exit(on_exit_of_process, nullptr) == 0 ? MPI_SUCCESS : MPI_ERR_OTHER;
}

const char* library() {
  static char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  return MPI_Get_library_version(text, &length) == MPI_SUCCESS ? text : "an MPI that gives no version";
}

int initialize() {
  int provided = MPI_THREAD_SINGLE;
  if (const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided)) return error;
  process().is_ours = true;
  return MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

int start(MpiPlace* place) {
  const std::lock_guard lock(process().mutex);
  place->was_ended = is_ended();
  if (place->was_ended) return MPI_SUCCESS;
  int is_initialized = 0;
  if (const int error = MPI_Initialized(&is_initialized)) return error;
  if (is_initialized == 0) {
    if (const int error = initialize()) return error;
  }
  if (process().pid != ::getpid()) {
    if (const int error = watch_end()) return error;
  }
  int threads = MPI_THREAD_SINGLE;
  if (const int error = MPI_Query_thread(&threads)) return error;
  place->threads = static_cast<MpiThreads>(threads);
  if (const int error = MPI_Comm_rank(MPI_COMM_WORLD, &place->rank)) return error;
  return MPI_Comm_size(MPI_COMM_WORLD, &place->size);
}

MPI_Request* raw(MpiRequest* request) {
  return reinterpret_cast<MPI_Request*>(request);
}

MPI_Comm raw(MpiComm comm) {
  return static_cast<MPI_Comm>(comm);
}

// MPI_REQUEST_NULL becomes null.
int begun(int error, MpiRequest* request) {
  if (error != MPI_SUCCESS || *raw(request) == MPI_REQUEST_NULL) *request = nullptr;
  return error;
}

int duplicate(MpiComm* comm, MpiRequest* request) {
  const std::lock_guard lock(process().mutex);
  return begun(MPI_Comm_idup(MPI_COMM_WORLD, reinterpret_cast<MPI_Comm*>(comm), raw(request)), request);
}

void free_comm(MpiComm* comm) {
  const std::lock_guard lock(process().mutex);
  if (!is_ended()) MPI_Comm_free(reinterpret_cast<MPI_Comm*>(comm));
  *comm = nullptr;
}

int send(MpiComm comm, int peer, const void* from, int bytes, MpiRequest* request) {
  const std::lock_guard lock(process().mutex);
  return begun(MPI_Issend(from, bytes, MPI_BYTE, peer, kTag, raw(comm), raw(request)), request);
}

int receive(MpiComm comm, int peer, void* into, int bytes, MpiRequest* request) {
  const std::lock_guard lock(process().mutex);
  return begun(MPI_Irecv(into, bytes, MPI_BYTE, peer, kTag, raw(comm), raw(request)), request);
}

int test(MpiRequest* request, bool* done, int* bytes) {
  const std::lock_guard lock(process().mutex);
  int flag = 0;
  MPI_Status status;
  const int error = MPI_Test(raw(request), &flag, &status);
  *done = error == MPI_SUCCESS && flag != 0;
  if (!*done) return error;
  *request = nullptr;
  return MPI_Get_count(&status, MPI_BYTE, bytes);
}

int cancel(MpiRequest* request) {
  const std::lock_guard lock(process().mutex);
  return MPI_Cancel(raw(request));
}

int progress(MpiComm comm) {
  const std::lock_guard lock(process().mutex);
  int flag = 0;
  return MPI_Iprobe(MPI_ANY_SOURCE, kTag, raw(comm), &flag, MPI_STATUS_IGNORE);
}

void error_text(int error, char* text, std::size_t room) {
  char all[MPI_MAX_ERROR_STRING] = "an error that MPI has no words for";
  int length = 0;
  MPI_Error_string(error, all, &length);
  std::snprintf(text, room, "%s", all);
}

void give_up(const char* why) {
  const std::lock_guard lock(process().mutex);
  if (process().why.empty()) process().why = *why == '\0' ? "no reason is known" : why;
}

constexpr MpiApi kApi = {kMpiApiVersion, library, start,  duplicate, free_comm,  send,
                         receive,        test,    cancel, progress,  error_text, give_up};

}  // namespace
}  // namespace horo

extern "C" __attribute__((visibility("default"))) const horo::MpiApi* horo_mpi_api() {
  return &horo::kApi;
}
