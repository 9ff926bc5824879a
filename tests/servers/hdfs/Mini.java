import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** One name node and one data node of HDFS: java Mini.java DIRECTORY PORT READY-FILE. */
public class Mini {
    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.set("hdfs.minidfs.basedir", arguments[0]);
        settings.set("dfs.permissions.enabled", "false");
        settings.set("dfs.namenode.fs-limits.min-block-size", "1024");
        boolean fresh = !new File(arguments[0]).exists();
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(settings)
            .numDataNodes(1)
            .nameNodePort(Integer.parseInt(arguments[1]))
            .nameNodeHttpPort(0)
            .format(fresh)
            .build();
        cluster.waitActive();
        new File(arguments[2]).createNewFile();
        Thread.currentThread().join();
    }
}
