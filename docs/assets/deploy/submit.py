"""The `headrace` command as a program for `spark-submit`, which takes a file and not a command.

    spark-submit --master yarn --deploy-mode cluster submit.py run shop.orders:pipeline \\
        --checkpoint hdfs://namenode:8020/orders --supervised
"""

from headrace.cli.main import main

if __name__ == "__main__":
    main()
