#pragma once
// Gives thick volumes the space that they have not. The files of a pool that was copied, restored or moved
// have holes where nothing was written: the programs for that leave them.
//
// Functions without state.

#include "devices/array/tgt/catalogue.h"
#include "devices/array/tgt/image_store.h"
#include "devices/array/tgt/pool_room.h"

namespace lunkeeper {

// Before the array answers calls; nodes may use the volumes. One that does not fit stays as a thin one, and
// takes nothing; the log names it.
void TakeThickSpace(Catalogue& catalogue, const ImageStore& images, const PoolRoom& room);

}  // namespace lunkeeper
