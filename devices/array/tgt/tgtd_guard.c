// Preloaded into tgtd (spawn_tgtd.cc). Before any login has named an initiator, tgtd 1.0.85 compares that name
// with each that a target admits: a request for the targets as the first packet of a connection, which needs
// no secret, ended it. It is built by itself, without any library, and goes when tgtd checks this itself.

int strcmp(const char* a, const char* b) {
  if (!a || !b) return (a != 0) - (b != 0);
  while (*a && *a == *b) ++a, ++b;
  return (unsigned char)*a - (unsigned char)*b;
}
