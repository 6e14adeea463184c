"""What all commands share: options, colour, progress, the spelling of numbers, files that are written whole."""
