#pragma once
// Tells the store which of its clients have ended, by which tgtd had an image open while its grant goes on
// (gateway_clients.h). Only what is certain: a client that lives and is shut out costs its node the volume.
// Where another LUN of the same image may be open, nobody knows whose client is whose, and all of them stay
// until the last tgtd with the image ends, or the volume's last grant.
//
// Functions without state. They ask the catalogue, and nobody else.

#include "devices/array/tgt/catalogue.h"
#include "devices/array/tgt/image_store.h"

namespace lunkeeper {

// No tgtd of this number runs, and none is started meanwhile.
void EndClientsOfTgtd(Catalogue& catalogue, const ImageStore& images, int tgtd);
// tgtd has closed the image of this grant. The caller is inside the volume's gate.
void EndClientsOfClosed(Catalogue& catalogue, const ImageStore& images, const GrantRow& grant);

}  // namespace lunkeeper
