// The driver of Open MPI and of MPICH: this file, compiled by the mpicxx of each.
#include <mpi.h>

#include <climits>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#include "bench/peers/harness.h"

namespace {

struct Mpi {
  harness_task task{};
  std::string collective;
  MPI_Datatype type = MPI_FLOAT;
  int count = 0;  // elements of the longer buffer
  int part = 0;   // elements of a rank's section of a divided buffer
};

int32_t prepare(void* user, const harness_task* task, char* error) {
  static const std::map<std::string, MPI_Datatype> types = {{"float32", MPI_FLOAT},
                                                            {"float64", MPI_DOUBLE},
                                                            {"int8", MPI_INT8_T},
                                                            {"uint8", MPI_UINT8_T},
                                                            {"int16", MPI_INT16_T},
                                                            {"uint16", MPI_UINT16_T},
                                                            {"int32", MPI_INT32_T},
                                                            {"uint32", MPI_UINT32_T},
                                                            {"int64", MPI_INT64_T},
                                                            {"uint64", MPI_UINT64_T},
                                                            {"complex64", MPI_C_FLOAT_COMPLEX},
                                                            {"complex128", MPI_C_DOUBLE_COMPLEX}};
  auto& mpi = *static_cast<Mpi*>(user);
  const auto type = types.find(task->dtype);
  if (type == types.end()) {
    std::snprintf(error, HARNESS_ERROR_BYTES, "MPI has no sums of %s", task->dtype);
    return 1;
  }
  if (task->count > INT_MAX) {
    std::snprintf(error, HARNESS_ERROR_BYTES, "MPI counts to %d elements", INT_MAX);
    return 1;
  }
  mpi = {*task, task->collective, type->second, static_cast<int>(task->count),
         static_cast<int>(task->count) / task->size};
  return 0;
}

int32_t run(void* user) {
  const Mpi& m = *static_cast<Mpi*>(user);
  void* const in = m.task.in;
  void* const out = m.task.out;
  const MPI_Comm world = MPI_COMM_WORLD;
  const std::string& c = m.collective;
  if (c == "all_reduce") return MPI_Allreduce(MPI_IN_PLACE, out, m.count, m.type, MPI_SUM, world);
  if (c == "broadcast") return MPI_Bcast(out, m.count, m.type, 0, world);
  if (c == "reduce") return MPI_Reduce(in, out, m.count, m.type, MPI_SUM, 0, world);
  if (c == "reduce_scatter") return MPI_Reduce_scatter_block(in, out, m.part, m.type, MPI_SUM, world);
  if (c == "all_gather") return MPI_Allgather(in, m.part, m.type, out, m.part, m.type, world);
  if (c == "gather") return MPI_Gather(in, m.part, m.type, out, m.part, m.type, 0, world);
  if (c == "scatter") return MPI_Scatter(in, m.part, m.type, out, m.part, m.type, 0, world);
  return MPI_Alltoall(in, m.part, m.type, out, m.part, m.type, world);
}

// "Open MPI v4.1.4, package: ..." and "MPICH Version: 4.0.2\nMPICH Release date: ...".
std::string one_line(const std::string& text) {
  std::string line = text.substr(0, text.find_first_of(",\n"));
  for (char& letter : line) letter = letter == '\t' ? ' ' : letter;
  return line;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  Mpi mpi;
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string version = one_line(text);
  const harness_driver driver{
      .user = &mpi, .version = version.c_str(), .allocate = nullptr, .prepare = prepare, .run = run, .finish = nullptr};
  const int result = harness_run(rank, size, &driver);
  MPI_Finalize();
  return result;
}
