// Each connection carries one request and its response, which may take several messages. The client's time
// limit comes with the request; the client waits a little longer than that (user_initiator.cc), so that the
// reason for a timeout is ours and says what was being waited for.

#include "devices/datapath/control_calls.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "devices/datapath/control_socket.h"
#include "devices/datapath/limits_message.h"

namespace lunkeeper {
namespace {

using Devices = std::vector<datapath::Device>;

// A packet holds 64 KiB (kMaxMessage), and a device takes a few hundred bytes of it, with statistics up to 1
// KiB.
constexpr size_t kDevicesInOneMessage = 48;
// A client sends its request at once; one that does not would keep a thread.
constexpr absl::Duration kRequestTimeout = absl::Seconds(5);
constexpr absl::Duration kLongestCall = absl::Minutes(10);

void SendDevices(int socket, const Devices& devices) {
  datapath::Response response;
  size_t sent = 0;
  do {
    response.Clear();
    const size_t end = std::min(devices.size(), sent + kDevicesInOneMessage);
    for (; sent < end; ++sent) *response.add_devices() = devices[sent];
    response.set_more(sent < devices.size());
    if (!SendMessage(socket, response).ok()) return;
  } while (response.more());
}

absl::StatusOr<Devices> JustOne(absl::StatusOr<datapath::Device> device) {
  RETURN_IF_ERROR(device.status());
  return Devices{*std::move(device)};
}

absl::StatusOr<Devices> NoneIfOk(const absl::Status& status) {
  RETURN_IF_ERROR(status);
  return Devices{};
}

absl::Time DeadlineOf(const datapath::Request& request) {
  return absl::Now() + std::min(absl::Milliseconds(request.timeout_ms()), kLongestCall);
}

}  // namespace

void ControlCalls::SendError(int socket, const absl::Status& status) {
  datapath::Response response;
  response.set_code(static_cast<int>(status.code()));
  response.set_message(std::string(status.message()));
  SendMessage(socket, response).IgnoreError();  // the caller has gone: nobody to tell
}

void ControlCalls::ServeConnection(int socket) {
  datapath::Request request;
  const absl::Status received = ReceiveMessage(socket, absl::Now() + kRequestTimeout, &request);
  if (!received.ok()) return SendError(socket, received);
  if (request.has_hand_over()) return predecessor_.HandOver(socket, request.hand_over());
  const absl::StatusOr<Devices> devices = request.has_detach() ? Detach(socket, request) : CarryOut(request);
  if (volumes_.hand_over() == HandOverPhase::kDone) return;
  if (!devices.ok()) return SendError(socket, devices.status());
  SendDevices(socket, *devices);
}

// Answers twice: a client that receives the first answer and no second one knows that nothing was lost.
absl::StatusOr<Devices> ControlCalls::Detach(int socket, const datapath::Request& request) {
  return NoneIfOk(
      volume_calls_.DetachVolume(VolumeId(request.detach().volume()), DeadlineOf(request), [socket] {
        datapath::Response written_back;
        written_back.set_more(true);
        SendMessage(socket, written_back).IgnoreError();
      }));
}

absl::StatusOr<Devices> ControlCalls::CarryOut(const datapath::Request& request) {
  const absl::Time deadline = DeadlineOf(request);
  switch (request.call_case()) {
    case datapath::Request::kList:
      return volumes_.ListDevices(VolumeId(), request.list().statistics());
    case datapath::Request::kUpgrade:
      return NoneIfOk(volumes_.UpgradeWorker(deadline));
    case datapath::Request::kStop:
      return NoneIfOk(volumes_.StopUnlessUsed());
    default:
      return CarryOutForVolume(request, deadline);
  }
}

absl::StatusOr<Devices> ControlCalls::CarryOutForVolume(const datapath::Request& request,
                                                        absl::Time deadline) {
  switch (request.call_case()) {
    case datapath::Request::kAttach:
      return JustOne(volume_calls_.AttachVolume(request.attach(), deadline));
    case datapath::Request::kResize:
      return JustOne(volume_calls_.ResizeVolume(VolumeId(request.resize().volume()), deadline));
    case datapath::Request::kFind:
      // An empty name would mean all of them.
      if (request.find().volume().empty()) return absl::InvalidArgumentError("find: no volume named");
      return volumes_.ListDevices(VolumeId(request.find().volume()), /*statistics=*/false);
    case datapath::Request::kFail:
      if (request.fail().volume().empty()) return absl::InvalidArgumentError("fail: no volume named");
      return NoneIfOk(volumes_.FailVolume(VolumeId(request.fail().volume()), request.fail().target(),
                                          request.fail().reason()));
    case datapath::Request::kSetLimits:
      volumes_.SetLimits(VolumeId(request.set_limits().volume()), FromMessage(request.set_limits().limits()));
      return Devices{};
    default:
      return absl::UnimplementedError("the data path does not know this call: upgrade it");
  }
}

}  // namespace lunkeeper
