#include "ring/cuda/cuda_device.h"

#include <array>
#include <stdexcept>

#include "horo/base/say.h"

namespace horo {

DeviceEvent::DeviceEvent(const CudaDevice& device, CudaStream stream) : device_(device) {
  const OnDevice here(device);
  device.check_stream(stream);
  const CudaApi& api = device.api();
  device.check(api.event_create(&event_), "making an event");
  if (const int error = api.event_record(event_, stream)) {
    api.event_destroy(event_);
    device.check(error, "recording an event");
  }
}

DeviceEvent::~DeviceEvent() {
  device_.free_on([this](const CudaApi& api) { api.event_destroy(event_); });
}

bool DeviceEvent::is_complete() const {
  const OnDevice here(device_);
  bool is_complete = false;
  device_.check(device_.api().event_query(event_, &is_complete), "looking at an event");
  return is_complete;
}

void DeviceEvent::wait() const {
  const OnDevice here(device_);
  device_.check(device_.api().event_wait_blocking(event_), "waiting for an event");
}

void DeviceEvent::hold_up(const CudaDevice& device, CudaStream stream) const {
  const OnDevice here(device);
  device.check(device.api().stream_wait(stream, event_), "letting a stream wait for an event");
}

std::string CudaDevice::name() const {
  return say("cuda:", number_);
}

void CudaDevice::check(int error, const char* what) const {
  if (error == 0) return;
  std::array<char, 300> text{};
  api_->error_text(error, text.data(), text.size());
  throw std::runtime_error(say(name(), ": ", what, ": ", text.data()));
}

void CudaDevice::check_stream(CudaStream stream) const {
  bool is_capturing = false;
  check(api_->stream_is_capturing(stream, &is_capturing), "looking at a stream");
  if (!is_capturing) return;
  throw std::invalid_argument(
      say(name(),
          ": the current stream is being captured into a CUDA graph: a collective is agreed on by the ranks each "
          "time it runs, so it cannot be replayed; call it outside of the capture"));
}

DeviceStream::DeviceStream(const CudaDevice& device) : device_(device) {
  const OnDevice here(device);
  device.check(device.api().stream_create(&stream_), "making a stream");
}

DeviceStream::~DeviceStream() {
  device_.free_on([this](const CudaApi& api) { api.stream_destroy(stream_); });
}

void DeviceStream::copy_to_host(void* to, const void* from, std::size_t bytes) {
  device_.check(device_.api().copy_to_host(to, from, bytes, stream_), "copying to the host");
}

void DeviceStream::copy_to_device(void* to, const void* from, std::size_t bytes) {
  device_.check(device_.api().copy_to_device(to, from, bytes, stream_), "copying to the device");
}

void DeviceStream::copy_on_device(void* to, const void* from, std::size_t bytes) {
  device_.check(device_.api().copy_on_device(to, from, bytes, stream_), "copying on the device");
}

void DeviceStream::copy_rows(const std::vector<CopyRow>& rows, bool is_here) {
  if (is_here && rows.size() > 1 && device_.api().copy_rows(rows.data(), rows.size(), stream_) == 0) return;
  for (const CopyRow& row : rows) {
    if (row.bytes > 0) copy_on_device(row.to, row.from, row.bytes);
  }
}

void DeviceStream::finish() {
  DeviceEvent(device_, stream_).wait();
}

void CudaDevices::load() {
  MutexLock lock(mutex_);
  if (library_.api == nullptr) library_ = load_cuda(config_);
}

CudaDevice CudaDevices::device(int number) {
  load();
  MutexLock lock(mutex_);
  if (number < 0 || number >= library_.devices) {
    throw std::invalid_argument(say("device ", number, ": this process has ", library_.devices,
                                    library_.devices == 1 ? " CUDA device" : " CUDA devices", ", with numbers from 0"));
  }
  return {*library_.api, number};
}

}  // namespace horo
