// Contestants: worlds of ranks that stand by all through a comparison, started once, each by its own library's
// launcher. While they have no turn they sleep in a read from the referee's socket.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/against/hosts.h"
#include "tools/horo/machine/descriptor.h"
#include "tools/horo/run/child.h"
#include "tools/horo/run/local_world.h"

namespace horo::tools {

// Who competes: a library, and by which of its ways.
struct Side {
  std::string library;  // horo, openmpi, mpich or gloo
  std::string path;     // default or tcp; horo's own are path_words()

  bool is_ours() const { return library == "horo"; }
  std::string name() const { return is_ours() || path != "default" ? library + "-" + path : library; }
};

// Words of --against and of --paths, and what they stand for.
const std::vector<std::string>& peer_words();
const std::vector<std::string>& path_words();
Side peer_side(const std::string& word);

// The folder and socket where the ranks of all contestants meet the referee. The folder goes with it.
class Venue {
 public:
  // Throws std::system_error.
  Venue(std::string peers, ContestHosts hosts);
  ~Venue();
  Venue(const Venue&) = delete;
  Venue& operator=(const Venue&) = delete;

  const std::string& folder() const { return folder_; }
  const std::string& peers() const { return peers_; }  // where the drivers are
  const ContestHosts& hosts() const { return hosts_; }
  int listener() const { return listener_.get(); }

 private:
  const std::string peers_;
  const ContestHosts hosts_;
  std::string folder_;
  Descriptor listener_;
};

class World {
 public:
  // Starts the ranks. Throws std::invalid_argument, saying what to install, where a driver or launcher is missing.
  World(Side side, int ranks, const Venue& venue);
  // Hangs up and lets the ranks end by themselves, for 5 s at most: Open MPI leaves files where it is killed.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  const Side& side() const { return side_; }
  std::string name() const { return side_.name(); }
  const std::string& version() const { return version_; }
  bool is_complete() const;
  void sit_down(int rank, Descriptor connection, std::string version);

  // Says a line to all ranks and returns their answers, by rank. Throws std::runtime_error, with the last words of
  // whoever ended, where a rank ends or does not answer within two minutes.
  std::vector<std::string> ask(const std::string& line);

  // Throws as ask() does if one of its processes has ended, and takes what they have written.
  void check();

 private:
  struct Seat {
    Descriptor connection;
    std::string heard;
  };

  void start_gloo(const Venue& venue);
  std::vector<std::string> openmpi_command(const Venue& venue) const;
  void start_mpi(const Venue& venue);
  void start_ours_by_mpi(const Venue& venue);
  void start_ours(const Venue& venue);
  void start_ours_on_hosts(const Venue& venue, const std::vector<std::string>& command);
  void start_program(std::vector<std::string> arguments, const std::vector<std::string>& variables);
  std::string hear(int rank);
  void listen_to_children();
  [[noreturn]] void give_up(const std::string& why);

  const Side side_;
  const int ranks_;
  std::string version_;
  std::unique_ptr<Launch> launch_;
  std::unique_ptr<LocalWorld> local_;
  std::vector<Child> children_;
  std::string last_words_;
  std::vector<Seat> seats_;
};

// Blocks until every rank of all of them sits. Throws std::runtime_error.
void seat_all(const Venue& venue, std::vector<std::unique_ptr<World>>& worlds);

}  // namespace horo::tools
