"""What every room uses and no user sees: checks, paths of leaves, files, progress, the compiler. Entered by module."""
