"""Parts shared by all commands: options, colour, progress, the spelling of numbers, atomic writes of files."""
