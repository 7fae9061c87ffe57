#pragma once
// Early return on an absl::Status or StatusOr that is not OK.

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define LK_CONCAT_INNER(a, b) a##b
#define LK_CONCAT(a, b) LK_CONCAT_INNER(a, b)

// RETURN_IF_ERROR(DoIt()); returns the status to the caller unless it is OK.
#define RETURN_IF_ERROR(expr)                 \
  do {                                        \
    const ::absl::Status& lk_status = (expr); \
    if (!lk_status.ok()) return lk_status;    \
  } while (false)

// ASSIGN_OR_RETURN(auto value, MakeIt()); declares or assigns `value`, or returns the status.
#define ASSIGN_OR_RETURN(lhs, expr) LK_ASSIGN_OR_RETURN(LK_CONCAT(lk_or_, __LINE__), lhs, expr)
#define LK_ASSIGN_OR_RETURN(tmp, lhs, expr) \
  auto tmp = (expr);                        \
  if (!tmp.ok()) return tmp.status();       \
  lhs = *std::move(tmp)
