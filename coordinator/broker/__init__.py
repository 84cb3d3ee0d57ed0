"""The way over the app's broker: its connection options, and the doorbells that wake nodes."""
