#pragma once
// Whose the catalogue's rows are. Thread-safe.

#include <map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/array/tgt/catalogue_file.h"
#include "devices/array/tgt/reassignment.h"
#include "devices/types.h"

namespace lunkeeper {

class ClusterCatalogue {
 public:
  explicit ClusterCatalogue(CatalogueFile& file) : file_(file) {}

  // Of each cluster that has any volume or snapshot.
  absl::StatusOr<std::map<ClusterId, ClusterHoldings>> ListHoldings();
  // OK: ReassignAll would do it now; `grants_end`: but for grants. Its errors otherwise.
  absl::Status CheckReassignable(const ClusterId& from, const ClusterId& to, bool grants_end);
  // Makes all volumes, snapshots and groups of one cluster those of another, in one change; terms, fences and
  // heartbeat LUNs stay as they are. FAILED_PRECONDITION: `from` has grants, which the message names.
  // ALREADY_EXISTS: the two have something of one name. ABORTED: something is being copied, or `from` does
  // not have just what is `expected`: something of it was made or deleted meanwhile.
  absl::Status ReassignAll(const ClusterId& from, const ClusterId& to, const ClusterHoldings& expected);

 private:
  CatalogueFile& file_;
};

}  // namespace lunkeeper
