"""A storage that refuses writes of holders whose lock is lost."""

from __future__ import annotations

import hallpass


class Storage:
    """Accepts a write whose fence is not below the last write's."""

    def __init__(self) -> None:
        self.fence = 0
        self.value = ""

    def write(self, fence: int, value: str) -> None:
        if fence < self.fence:
            raise PermissionError(f"fence {fence} is below {self.fence}: that lock was lost")
        self.fence, self.value = fence, value


def main() -> None:
    storage = Storage()
    with hallpass.Client() as client:
        for invoice in ("first", "second"):
            with client.lock("invoices/42", timeout=30) as held:
                storage.write(held.fence, invoice)
    print(f"wrote {storage.value!r} with fence {storage.fence}")


if __name__ == "__main__":
    main()
