#include "ring/os/backoff.h"

#include <thread>

namespace horo {

void back_off(std::chrono::milliseconds time) {
  std::this_thread::sleep_for(time);
}

}  // namespace horo
