"""The entry point of ``babelgate`` and of ``python -m babelgate``."""


def main() -> None:
    """Run the command line."""
    # Each worker of ``serve --workers`` imports this module again, and needs none of the commands.
    from babelgate.cli.main import main

    main()


if __name__ == "__main__":
    main()
