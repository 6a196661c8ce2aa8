// Links between ranks that live as threads in this process.

#include <utility>

#include "horo/base/say.h"
#include "ring/links.h"

namespace horo {

std::vector<Links> connect_in_process(int size) {
  auto transports = make_in_process_transports(size);
  auto controls = make_in_process_control_links(size);
  std::vector<Links> links(transports.size());
  for (std::size_t rank = 0; rank < links.size(); ++rank) {
    links[rank].transport = std::move(transports[rank]);
    links[rank].control = std::move(controls[rank]);
    for (int other = 0; other < size; ++other) links[rank].names.push_back(say("rank ", other));
  }
  return links;
}

}  // namespace horo
