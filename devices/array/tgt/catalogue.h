#pragma once
// The array's memory: volumes, snapshots, grants, fences and terms, in one SQLite file (catalogue_file.h).
//
// The rules that must never be broken are checked inside the transaction that would break them: one exclusive
// grant, no grant to a fenced node, no deletion of a granted volume, no older term. So they hold whatever the
// callers' locks do. Generations and ids are never used again.
// Thread-safe. Failure: RESOURCE_EXHAUSTED the disk is full; INTERNAL SQLite's own errors; others where they
// are named.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "devices/array/tgt/catalogue_file.h"
#include "devices/array/tgt/cluster_catalogue.h"
#include "devices/array/tgt/fence_catalogue.h"
#include "devices/array/tgt/grant_catalogue.h"
#include "devices/array/tgt/volume_catalogue.h"

namespace lunkeeper {

class Catalogue {
 public:
  // As CatalogueFile::Open.
  static absl::StatusOr<std::unique_ptr<Catalogue>> Open(const std::string& path, const std::string& array,
                                                         const CatalogueFile::MakeRoom& make_room = {});

  VolumeCatalogue& volumes() { return volumes_; }
  GrantCatalogue& grants() { return grants_; }
  FenceCatalogue& fences() { return fences_; }
  ClusterCatalogue& clusters() { return clusters_; }

  const std::string& target_key() const { return file_->target_key(); }
  // As CatalogueFile's.
  PoolIdentity identity() const { return file_->identity(); }
  void NoteCopy(const PoolIdentity& known) { file_->NoteCopy(known); }
  uint64_t sequence() const { return file_->sequence(); }
  // Another text after each change, and each time that the catalogue is opened.
  std::string version() const { return absl::StrCat(opened_as_, "-", sequence()); }
  // As CatalogueFile's.
  absl::Status CopyTo(const std::string& path) { return file_->CopyTo(path); }
  // As CatalogueFile::SkipTo.
  absl::Status SkipTo(uint64_t sequence) { return file_->SkipTo(sequence); }

 private:
  explicit Catalogue(std::unique_ptr<CatalogueFile> file)
      : file_(std::move(file)), volumes_(*file_), grants_(*file_), fences_(*file_), clusters_(*file_) {}

  const std::string opened_as_ = RandomSecret();
  const std::unique_ptr<CatalogueFile> file_;
  VolumeCatalogue volumes_;
  GrantCatalogue grants_;
  FenceCatalogue fences_;
  ClusterCatalogue clusters_;
};

}  // namespace lunkeeper
