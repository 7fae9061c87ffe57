#pragma once
// One connection of a client to the control socket: receives a request (control.proto), has it carried out,
// and sends the response. volume_calls.h has the table of what each call does.
//
// Thread-safe: each connection is served on a thread of its own. `volumes` and `predecessor` outlive this.

#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/datapath/attachment_records.h"
#include "devices/datapath/control.pb.h"
#include "devices/datapath/hand_over.h"
#include "devices/datapath/supervised_volumes.h"
#include "devices/datapath/volume_calls.h"

namespace lunkeeper {

class ControlCalls {
 public:
  ControlCalls(SupervisedVolumes& volumes, const Predecessor& predecessor, const AttachmentRecords& records,
               bool may_resend)
      : volumes_(volumes), predecessor_(predecessor), volume_calls_(volumes, records, may_resend) {}

  // Returns when the response is sent, or nobody is there to receive it. Once a successor serves there is no
  // response: the client repeats its call there.
  void ServeConnection(int socket);
  // The response to a call that is not carried out. Waits for nobody.
  static void SendError(int socket, const absl::Status& status);

 private:
  absl::StatusOr<std::vector<datapath::Device>> Detach(int socket, const datapath::Request& request);
  absl::StatusOr<std::vector<datapath::Device>> CarryOut(const datapath::Request& request);
  absl::StatusOr<std::vector<datapath::Device>> CarryOutForVolume(const datapath::Request& request,
                                                                  absl::Time deadline);

  SupervisedVolumes& volumes_;
  const Predecessor& predecessor_;
  VolumeCalls volume_calls_;
};

}  // namespace lunkeeper
