import java.io.File;
import java.io.FileOutputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/** A resource manager and a node manager of YARN: java MiniYarn.java CONF-DIRECTORY MEGABYTES. */
public class MiniYarn {
    public static void main(String[] arguments) throws Exception {
        YarnConfiguration settings = new YarnConfiguration();
        settings.set("yarn.scheduler.minimum-allocation-mb", "256");
        settings.set("yarn.nodemanager.resource.memory-mb", arguments[1]);
        settings.set("yarn.nodemanager.resource.cpu-vcores", "8");
        settings.set("yarn.nodemanager.vmem-check-enabled", "false");
        settings.set("yarn.nodemanager.pmem-check-enabled", "false");
        settings.set("yarn.nodemanager.disk-health-checker.enable", "false");
        settings.set("yarn.nodemanager.delete.debug-delay-sec", "0");
        settings.set("yarn.resourcemanager.bind-host", "127.0.0.1");
        settings.set("yarn.nodemanager.bind-host", "127.0.0.1");
        settings.set("yarn.resourcemanager.scheduler.class",
            "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler");
        MiniYARNCluster cluster = new MiniYARNCluster("headrace", 1, 1, 1);
        cluster.init(settings);
        cluster.start();
        cluster.waitForNodeManagersToConnect(60000);
        File file = new File(arguments[0], "yarn-site.xml");
        File aside = new File(arguments[0], ".yarn-site.xml");
        try (FileOutputStream out = new FileOutputStream(aside)) {
            cluster.getConfig().writeXml(out);
        }
        aside.renameTo(file);
        Thread.currentThread().join();
    }
}
