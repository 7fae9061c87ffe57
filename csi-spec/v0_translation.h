#pragma once
// Messages of CSI 0.3 as messages of 1.x, and back. What both versions have, both have under one number and
// with one type, and names do not matter on the wire: so a message is written as one and read as the other.
// What only one version knows is left out. The few numbers that mean something else have a function of their
// own below. Pure functions, thread-safe. The message written to is empty before.

#include <google/protobuf/message.h>

#include "csi/v0/csi.pb.h"
#include "csi/v1/csi.pb.h"

namespace lunkeeper::csi_v0 {

// Brings a message of 0.3 into the form that 1.x understands, or back again (it is its own reverse). The
// prefix of a topology's key is a domain name: 0.3 writes it backwards (io.lunkeeper.array), 1.x does not.
// Fields and enum values that 0.3 does not know are removed: an orchestrator of 0.3 cannot have meant them.
void NormalizeMessage(google::protobuf::Message* v0);

// Fields that are not the same in both are left out.
void RecodeMessage(const google::protobuf::Message& from, google::protobuf::Message* to);

template <class From, class To>
void TranslateMessage(const From& from, To* to) {
  RecodeMessage(from, to);
}

// The numbers differ.
void TranslateMessage(const csi::v0::ValidateVolumeCapabilitiesRequest& from,
                      csi::v1::ValidateVolumeCapabilitiesRequest* to);
void TranslateMessage(const csi::v1::ValidateVolumeCapabilitiesResponse& from,
                      csi::v0::ValidateVolumeCapabilitiesResponse* to);
// Each leaves out the capabilities that came later.
void TranslateMessage(const csi::v1::GetPluginCapabilitiesResponse& from,
                      csi::v0::GetPluginCapabilitiesResponse* to);
void TranslateMessage(const csi::v1::ControllerGetCapabilitiesResponse& from,
                      csi::v0::ControllerGetCapabilitiesResponse* to);
void TranslateMessage(const csi::v1::NodeGetCapabilitiesResponse& from,
                      csi::v0::NodeGetCapabilitiesResponse* to);
// A volume made of another one has no source that 0.3 could name.
void TranslateMessage(const csi::v1::ListVolumesResponse& from, csi::v0::ListVolumesResponse* to);
// Time and status of a snapshot.
void TranslateMessage(const csi::v1::CreateSnapshotResponse& from, csi::v0::CreateSnapshotResponse* to);
void TranslateMessage(const csi::v1::ListSnapshotsResponse& from, csi::v0::ListSnapshotsResponse* to);
// A mode of a single node means one target path in 0.3 ("NodePublishVolume", the table for a second call).
void TranslateMessage(const csi::v0::NodePublishVolumeRequest& from, csi::v1::NodePublishVolumeRequest* to);

}  // namespace lunkeeper::csi_v0
