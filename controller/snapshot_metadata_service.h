#pragma once
// The CSI SnapshotMetadata service over arrays: which blocks of a snapshot were written, and which differ
// from an older snapshot, for backups that copy only those. It asks the array page by page and keeps nothing
// in between. So a stream takes little memory and holds no lock, however long its caller takes, and one that
// broke is asked for again from where it broke.
//
// Thread-safe. The arrays outlive it.

#include <memory>

#include "controller/stream_watch.h"
#include "csi/v1/csi.grpc.pb.h"
#include "devices/array/arrays.h"

namespace lunkeeper {

std::unique_ptr<csi::v1::SnapshotMetadata::Service> MakeSnapshotMetadataService(
    Arrays& arrays, const StreamLimits& limits = {});

}  // namespace lunkeeper
