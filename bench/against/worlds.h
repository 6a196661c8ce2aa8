// Worlds: the ranks of one contestant, started once by the launcher of its library and kept for the whole comparison.
// Between turns the ranks block in a read from the coordinator's socket.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/against/hosts.h"
#include "tools/horo/machine/descriptor.h"
#include "tools/horo/run/child.h"
#include "tools/horo/run/local_world.h"

namespace horo::bench {

// A library and one of its data paths.
struct Contestant {
  std::string library;  // horo, openmpi, mpich or gloo
  std::string path;     // of a peer: default or tcp; of horo: one of path_words()

  bool is_horo() const { return library == "horo"; }
  std::string name() const { return is_horo() || path != "default" ? library + "-" + path : library; }
};

// The words of --against and of --paths.
const std::vector<std::string>& peer_words();
const std::vector<std::string>& path_words();
Contestant peer_named(const std::string& word);

// The temporary folder of a comparison and the coordinator's socket in it, to which the ranks of all worlds connect.
// The destructor removes the folder.
class Environment {
 public:
  // Throws std::system_error.
  Environment(std::string drivers, HostList hosts);
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  const std::string& folder() const { return folder_; }
  const std::string& drivers() const { return drivers_; }  // the folder of the drivers
  const HostList& hosts() const { return hosts_; }
  int listener() const { return listener_.get(); }

 private:
  const std::string drivers_;
  const HostList hosts_;
  std::string folder_;
  tools::Descriptor listener_;
};

class World {
 public:
  // Starts the ranks. Throws std::invalid_argument if a driver or launcher is missing, with the package to install.
  World(Contestant contestant, int ranks, const Environment& environment);
  // Closes the connections and waits up to 5 s for the ranks to exit: a killed Open MPI leaves files behind.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  const Contestant& contestant() const { return contestant_; }
  std::string name() const { return contestant_.name(); }
  const std::string& version() const { return version_; }
  bool is_complete() const;  // every rank is attached
  void attach(int rank, tools::Descriptor connection, std::string version);

  // Sends a line to all ranks and returns their answers by rank. Blocks. Throws std::runtime_error with the last output
  // of the processes where a rank ends or does not answer within two minutes.
  std::vector<std::string> request(const std::string& line);

  // Reads the output of the processes. Throws as request() does if one of them has ended.
  void check();

 private:
  struct RankLink {
    tools::Descriptor connection;
    std::string received;
  };

  void start_gloo(const Environment& environment);
  std::vector<std::string> openmpi_command(const Environment& environment) const;
  void start_mpi(const Environment& environment);
  void start_horo_by_mpi(const Environment& environment);
  void start_horo(const Environment& environment);
  void start_horo_on_hosts(const Environment& environment, const std::vector<std::string>& command);
  void start_program(std::vector<std::string> arguments, const std::vector<std::string>& variables);
  std::string read_answer(int rank);
  void read_output();
  [[noreturn]] void fail(const std::string& why);

  const Contestant contestant_;
  const int ranks_;
  std::string version_;
  std::unique_ptr<tools::Launch> launch_;
  std::unique_ptr<tools::LocalWorld> local_;
  std::vector<tools::Child> children_;
  std::string tail_;  // of the output of all processes
  std::vector<RankLink> links_;
};

// Blocks until every rank of all worlds is attached. Throws std::runtime_error.
void attach_all(const Environment& environment, std::vector<std::unique_ptr<World>>& worlds);

}  // namespace horo::bench
