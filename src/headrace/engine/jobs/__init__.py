"""The job of an epoch, as its driver sees it: attempts, and slots that hold it up."""
