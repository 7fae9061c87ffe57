#pragma once
// What an array serves from: files in a directory (file_store.h), or images in a pool of Ceph
// (rbd_array_store.h). The catalogue goes before the images.

#include <memory>
#include <string>

#include "base/periodic.h"
#include "devices/array/tgt/catalogue.h"
#include "devices/array/tgt/image_store.h"

namespace lunkeeper {

class GatewayLease;

struct OpenedStore {
  std::unique_ptr<ImageStore> images;
  std::unique_ptr<Catalogue> catalogue;
  GatewayLease* lease = nullptr;              // of `images`; null: the store has one host alone
  std::string cache_id;                       // the LUNs' product id (cache_id.h)
  std::unique_ptr<Periodic> peers = nullptr;  // looks at other gateways; uses `lease`
};

}  // namespace lunkeeper
