"""Programs for work on the project: generated pages, releases, an emulator. No part of the product imports them."""
