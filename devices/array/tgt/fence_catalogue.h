#pragma once
// The catalogue's terms and fences. Threads, durability and failure: as catalogue.h says.

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/array/fence_control.h"
#include "devices/array/tgt/catalogue_file.h"

namespace lunkeeper {

class FenceCatalogue {
 public:
  explicit FenceCatalogue(CatalogueFile& file) : file_(file) {}

  absl::StatusOr<Term> BeginTerm(const ClusterId& cluster, const std::string& holder);
  // Records the fence and marks the grants that it ends as releasing, in one change.
  // FAILED_PRECONDITION: the term is not the one in force.
  absl::StatusOr<FenceRecord> AddFence(const ClusterId& cluster, Term term, const FenceRequest& request);
  absl::Status RemoveFence(const ClusterId& cluster, Term term, const NodeId& node, Generation generation);
  absl::StatusOr<std::vector<FenceRecord>> ListFences(const ClusterId& cluster);
  absl::StatusOr<std::map<ClusterId, std::vector<FenceRecord>>> ListAllFences();
  // FAILED_PRECONDITION: it or its machine is fenced.
  absl::Status CheckNotFenced(const ClusterId& cluster, const NodeId& node);

 private:
  CatalogueFile& file_;
};

// The same inside a change: FAILED_PRECONDITION when the node or its machine is fenced.
absl::Status RefuseIfFenced(SqlDatabase& database, const ClusterId& cluster, const NodeId& node);

}  // namespace lunkeeper
