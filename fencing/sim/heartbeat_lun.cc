// A session lasts as long as the array's tgtd: a new one does not know it.

#include "fencing/sim/heartbeat_lun.h"

#include <algorithm>
#include <string>
#include <utility>

#include "fencing/sim/array_model.h"
#include "fencing/sim/machine.h"

namespace lunkeeper::fencing::sim {
namespace {

absl::Status LunIsSilent() { return absl::DeadlineExceededError("the array does not answer"); }

class SimulatedLun final : public HeartbeatLun {
 public:
  SimulatedLun(const Machine& machine, Process& process, ArrayModel& array, uint64_t session, Span timeout)
      : machine_(machine), process_(process), array_(array), session_(session), timeout_(timeout) {}

  absl::Status WriteBlocks(uint64_t, std::span<const char> data) override {
    if (!machine_.Heartbeats()) return LunIsSilent();
    const auto written = Call<bool>(
        [&array = array_, id = machine_.id(), block = std::string(data.begin(), data.end())](auto reply) {
          array.WriteHeartbeat(id, block);
          reply(true);
        });
    return written ? absl::OkStatus() : LunIsSilent();
  }

  absl::Status ReadBlocks(uint64_t, std::span<char> data) override {
    const auto notice =
        Call<std::string>([&array = array_, id = machine_.id()](auto reply) { reply(array.NoticeTo(id)); });
    if (!notice) return LunIsSilent();
    std::fill(data.begin(), data.end(), '\0');
    std::copy_n(notice->begin(), std::min(notice->size(), data.size()), data.begin());
    return absl::OkStatus();
  }

 private:
  template <class Reply>
  std::optional<Reply> Call(std::function<void(std::function<void(Reply)>)> serve) {
    return process_.Call<Reply>(array_.portal(), timeout_,
                                [&array = array_, session = session_, serve = std::move(serve)](auto reply) {
                                  if (array.serves() && array.tgtd() == session) serve(reply);
                                });
  }

  const Machine& machine_;
  Process& process_;
  ArrayModel& array_;
  const uint64_t session_;
  const Span timeout_;
};

}  // namespace

LogInToHeartbeatLun LogInToSimulatedLun(const Machine& machine, Process& process) {
  return [&machine, &process](const Connection& connection,
                              absl::Duration timeout) -> absl::StatusOr<std::unique_ptr<HeartbeatLun>> {
    ArrayModel& array =
        process.world().FindArray(ArrayId(connection.portal.substr(0, connection.portal.find(':'))));
    const Span most = process.InWorld(timeout);
    const auto session = process.Call<uint64_t>(array.portal(), most, [&array](auto reply) {
      if (array.serves()) reply(array.tgtd());
    });
    if (!session) return LunIsSilent();
    return std::make_unique<SimulatedLun>(machine, process, array, *session, most);
  };
}

}  // namespace lunkeeper::fencing::sim
